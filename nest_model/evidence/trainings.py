"""What the trainings behind the scores say of themselves: the events beyond their context, the rates they tried."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nest_model.data.selection import ContextCut
from schemas.io.verify import is_written, verified

PRETRAINING = "pretraining"


def events_left_out(model: Path) -> float | None:
    """Return the share of the selected events that a model's context leaves out; None for a model without context."""
    cut = _metrics(model).get("context_cut")
    return None if cut is None else ContextCut(**cut).events_share


def trials(model: Path, row: str, training: str) -> list[dict[str, Any]]:
    """Return a line for each learning rate that a search tried; none without a search.

    Args:
        row: its title. training: the task, or PRETRAINING.
    """
    metrics = _metrics(model)
    return [
        {
            "row": row,
            "training": training,
            "learning_rate": trial["learning_rate"],
            "best": trial["learning_rate"] == metrics["recipe"]["learning_rate"],
            "score": _score(trial),
        }
        for trial in metrics.get("trials", [])
    ]


def _score(trial: Mapping[str, Any]) -> str:
    """Return the words of what a trial was judged by."""
    if "failure" in trial:
        return str(trial["failure"])
    precision = trial.get("val_average_precision")
    if precision is not None:
        return f"AP {precision:.4f}"
    loss = trial.get("val_loss")
    return "withheld" if loss is None else f"loss {loss:.4f}"


def _metrics(model: Path) -> dict[str, Any]:
    file = model / "metrics.json"
    content: dict[str, Any] = json.loads(verified(file).read_bytes()) if is_written(file) else {}
    return content
