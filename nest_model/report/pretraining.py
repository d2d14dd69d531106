"""The results of the pretraining: losses per epoch, and set prediction on validation sets."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nest_model.training.paper_differences import differences
from schemas.io.verify import is_written, verified
from schemas.suppress import suppress_small

GUESS_DEFAULTS: Mapping[str, Any] = {"yardsticks": {}, "not_learnt": [], "not_judged": []}
_COUNTS = ("train_patients", "val_patients", "train_sets", "train_tokens")


def pretraining(model: Path) -> dict[str, Any] | None:
    """Return a pretrained model's `metrics.json` with counts suppressed; None if the folder holds no model."""
    path = model / "metrics.json"
    if not is_written(path):
        return None
    metrics = json.loads(verified(path).read_text())
    settings = {
        name: metrics.get(name) for name in ("preset", "device", "seed", "weights", "recipe", "context_cut")
    }
    return {
        "validation": metrics.get("validation", {}),
        **{name: metrics.get(name, empty) for name, empty in GUESS_DEFAULTS.items()},
        "history": metrics.get("history", []),
        "counts": {name: suppress_small(int(metrics[name])) for name in _COUNTS if name in metrics},
        "epochs": len(metrics.get("history", [])),
        **{name: value for name, value in settings.items() if value is not None},
        "model": _config(model).get("model", {}),
        "differences": recipe_beside_paper(model, is_finetuned=False),
    }


def recipe_beside_paper(model: Path, *, is_finetuned: bool) -> list[dict[str, str]]:
    """Return where a model's config and recipe differ from the paper's NEST; empty if the folder holds no model."""
    config = _config(model)
    training = config.get("training", {})
    return differences(config["model"], training, is_finetuned=is_finetuned) if "recipe" in training else []


def _config(model: Path) -> dict[str, Any]:
    path = model / "config.json"
    return json.loads(verified(path).read_text()) if is_written(path) else {}
