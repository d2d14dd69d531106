"""What NEST loses without a part of its input, in a sentence: of which parts it is more than chance would have it."""

from collections.abc import Mapping
from typing import Any

from nest_model.report.table import interval


def without(found: Mapping[str, Any]) -> str:
    """Return which parts cost surely more AUROC than as many events at random, which less, which neither."""
    beyond = {one["name"]: one["beyond"]["auroc"] for one in found["removals"]}
    judged = {name: one for name, one in beyond.items() if one["low"] is not None}
    if not judged:
        return "There is no interval to judge by, for want of patients."
    parts = {
        "NEST loses more AUROC without these than without as many events at random": [
            f"{name}, {interval(one, signed=True)}" for name, one in judged.items() if one["low"] > 0
        ],
        "It loses less without": [
            f"{name}, {interval(one, signed=True)}" for name, one in judged.items() if one["high"] < 0
        ],
        "This data cannot tell of": [name for name, one in judged.items() if one["low"] <= 0 <= one["high"]],
    }
    return " ".join(f"{words}: {'; '.join(names)}." for words, names in parts.items() if names)
