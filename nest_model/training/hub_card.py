"""What a model's README has for a hub of models: front matter, a snippet to use it, and who may have the weights."""

from collections.abc import Sequence

import yaml

from schemas.tables.labels import LabelType

CLASSES: tuple[LabelType, ...] = ("bool", "class", "list")

LICENCE = """\
## Licence
The code that made this model is under Apache-2.0. The weights are not: they are derived from the data they were trained
on, and its agreement says who may have them.
- Credentialed data of PhysioNet, such as MIMIC-IV: treat the weights as sensitive. Do not publish them; to share them,
  use PhysioNet, under the agreement of the data (PhysioNet, Guidelines for creating datasets and models from MIMIC,
  2024).
- Records of a site: its agreement decides, and unless it says otherwise the weights do not leave the site.
- Made-up or openly licensed data: they may be published. Then write that licence in place of `other` above.

`metrics.jsonl`, `tensorboard/` and `config.json` hold counts and curves of the training: read them before you push
them.
"""

USAGE = """\
## Usage
```python
import nest_model

model = nest_model.load(".")  # this folder
table = model.{call}
```
The shards have to be written with this model's vocabulary; another one is refused. More: docs/python.md of NEST.
"""


def front_matter(*, library: str, tags: Sequence[str], metrics: Sequence[str], task: str) -> str:
    """Return the YAML at the top of a README by which a hub finds a model, with the lines around it.

    Args:
        metrics: by the hub's names, e.g. `roc_auc`.
        task: the hub's `pipeline_tag`.
    """
    content = {
        "library_name": library,
        "license": "other",
        "license_name": "that-of-the-training-data",
        "pipeline_tag": task,
        "tags": list(tags),
        "metrics": list(metrics),
    }
    return f"---\n{yaml.safe_dump(content, sort_keys=False)}---\n"


SCORES: dict[LabelType, tuple[str, ...]] = {
    **dict.fromkeys(CLASSES, ("roc_auc", "average_precision", "brier_score")),
    "number": ("mae", "r2", "spearmanr"),
    "time": ("concordance", "integrated_brier_score"),
}
"""The metrics of predictions by label type, by the hub's names."""


def hub_task(label_type: LabelType) -> str:
    """Return the hub's `pipeline_tag` of models of a label type; it has none of its own for times to an event."""
    return "tabular-classification" if label_type in CLASSES else "tabular-regression"
