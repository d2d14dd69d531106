"""The paper's results on its own pediatric cohorts, shown beside ours; the data differ, so they are not comparable."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nest_model.report.table import LABELS as OURS


@dataclass(frozen=True)
class PaperTask:
    """A cohort of the paper's section "Proprietary EHR": its size, and AUROC and AP of each model."""

    test_rows: int
    prevalence: float
    scores: Mapping[str, tuple[float, float]]  # model -> AUROC, AP


LABELS = {
    "lightgbm": OURS["lightgbm"],
    "core_behrt_probed": "CORE-BEHRT, probed",
    "core_behrt": "CORE-BEHRT, fine-tuned",
    "probe": OURS["probe"],
    "nest": OURS["nest"],
}
_SIZES = {  # test rows, prevalence
    "pcornet_recurrent_aom": (1_030, 0.220),
    "pcornet_autism": (8_945, 0.0205),
    "pcornet_readmission_30d_home": (12_072, 0.191),
}
_TABLE = {  # AUROC and AP of each model, by cohort
    "lightgbm": ((0.717, 0.401), (0.736, 0.060), (0.738, 0.466)),
    "core_behrt_probed": ((0.721, 0.396), (0.703, 0.098), (0.738, 0.468)),
    "core_behrt": ((0.730, 0.439), (0.738, 0.102), (0.738, 0.468)),
    "probe": ((0.737, 0.426), (0.711, 0.076), (0.734, 0.457)),
    "nest": ((0.738, 0.432), (0.742, 0.109), (0.741, 0.475)),
}
PAPER = {
    cohort: PaperTask(*size, {model: scores[place] for model, scores in _TABLE.items()})
    for place, (cohort, size) in enumerate(_SIZES.items())
}


def paper_comparison(tasks: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one row per model for each task that the paper also has: its scores, and ours where available.

    Args:
        tasks: cohort -> result of `score_task`.
    """
    rows = []
    for cohort, task in tasks.items():
        if (paper := PAPER.get(cohort)) is None:
            continue
        for place, (model, (auroc, average_precision)) in enumerate(paper.scores.items()):
            ours = task["models"].get(model)
            rows.append(
                {
                    "task": task["title"] if place == 0 else "",
                    "model": LABELS[model],
                    "test_rows": paper.test_rows,
                    "prevalence": paper.prevalence,
                    "auroc": auroc,
                    "average_precision": average_precision,
                    "ours": ours,
                }
            )
    return rows
