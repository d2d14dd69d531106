"""The names of the curve's models, on its page and in its figure."""

from collections.abc import Mapping, Sequence
from typing import Any

from nest_model.report.table import LABELS


def name_in_curve(model: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the name of a model; that of NEST without pretraining says at which sizes it had NEST's learning rate."""
    by_rate_of_nest = [row["size"] for row in rows if row["fresh_rate_factor"] == 1]
    if model != "without_pretraining" or not by_rate_of_nest:
        return LABELS[model]
    sizes = [f"{size:,}" for size in by_rate_of_nest]
    where = "" if len(sizes) == len(rows) else f" at {', '.join(sizes)} patients"
    return f"{LABELS[model]} (by NEST's rate{where})"
