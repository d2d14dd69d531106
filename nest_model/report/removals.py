"""Sentences on what NEST loses without a part of its input, compared with removing random events."""

from collections.abc import Mapping
from typing import Any

from nest_model.report.table import interval
from schemas.code_names import kind_in_words


def removal_summary(removals: Mapping[str, Any]) -> str:
    """Return which parts cost significantly more AUROC than as many random events, which less, and which neither."""
    differences = {kind_in_words(score["name"]): score["beyond"]["auroc"] for score in removals["removals"]}
    with_interval = {name: score for name, score in differences.items() if score["low"] is not None}
    if not with_interval:
        return "There are too few patients for an interval."
    parts = {
        "NEST loses more AUROC without these than without as many random events": [
            f"{name}, {interval(score, with_sign=True)}"
            for name, score in with_interval.items()
            if score["low"] > 0
        ],
        "It loses less without": [
            f"{name}, {interval(score, with_sign=True)}"
            for name, score in with_interval.items()
            if score["high"] < 0
        ],
        "No significant difference": [
            name for name, score in with_interval.items() if score["low"] <= 0 <= score["high"]
        ],
    }
    return " ".join(f"{words}: {'; '.join(names)}." for words, names in parts.items() if names)
