"""The words for the metrics of each kind of task, in tables and sentences."""

from collections.abc import Mapping

_OF_CLASSES = {"auroc": "AUROC ↑", "average_precision": "AP ↑", "brier": "Brier ↓", "ece": "ECE ↓"}
_NAMES = {
    "bool": _OF_CLASSES | {"calibration_slope": "Calibration slope"},
    "number": {"mae": "MAE ↓", "r2": "R² ↑", "spearman": "Spearman ↑"},
    "time": {"concordance": "Concordance ↑", "integrated_brier": "Integrated Brier ↓"},
}

_COMPARED = {
    "number": {"mae": "MAE", "spearman": "Spearman"},
    "time": {"concordance": "Concordance", "integrated_brier": "Integrated Brier"},
}

OTHER_TYPES = {"number": "Numbers", "time": "Times to an event"}
"""Kinds of task with metrics of their own, and the captions of their tables."""

LOWER_IS_BETTER = ("mae", "integrated_brier")
"""Metrics of which a negative difference NEST − model is a better NEST."""


def metric_names(label_type: str | None) -> Mapping[str, str]:
    """Return the columns of a task's table of scores: metric -> its name, and which way is better."""
    return _NAMES.get(label_type or "", _OF_CLASSES)


def without_arrow(name: str) -> str:
    """Return a metric's name without the arrow that says which way is better."""
    return name.rstrip(" ↑↓")


def compared_by(label_type: str | None) -> Mapping[str, str]:
    """Return the two metrics that models are compared by: metric -> its name."""
    return _COMPARED.get(label_type or "", {"auroc": "AUROC", "average_precision": "AP"})
