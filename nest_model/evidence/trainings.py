"""What the trainings behind the scores say of themselves: the events beyond their context, the settings they tried."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nest_model.config import Readout
from nest_model.data.selection import ContextCut
from nest_model.training.seeds import list_other_seeds, model_of_seed
from schemas.io.verify import is_written, verified

PRETRAINING = "pretraining"


def events_left_out(model: Path) -> float | None:
    """Return the share of the selected events that a model's context leaves out; None for a model without context."""
    cut = _metrics(model).get("context_cut")
    return None if cut is None else ContextCut(**cut).events_share


def readout_and_frozen_blocks(model: Path) -> tuple[Readout, tuple[str, ...]] | None:
    """Return how a fine-tuned model reads patients and which blocks stayed as pretrained; None without such a model."""
    config, frozen = _config(model), _metrics(model).get("frozen")
    return None if frozen is None else (config["model"]["readout"], tuple(frozen))


def trials(model: Path, row: str, training: str) -> list[dict[str, Any]]:
    """Return a line for each learning rate, or each setting of trees, that a search tried; none without a search.

    An encoder's further seeds have the rate of the first; trees are searched anew with each seed.

    Args:
        row: its title. training: the task, or PRETRAINING.
    """
    further = {f"{training}, seed {seed}": model_of_seed(model, seed) for seed in list_other_seeds(model)}
    return [
        {"row": row, "training": words} | line
        for words, folder in ({training: model} | further).items()
        for line in _lines(folder)
    ]


def _lines(model: Path) -> Iterator[dict[str, Any]]:
    """Yield the settings of each trial of a model, whether they are its own, and what they were judged by."""
    metrics = _metrics(model)
    for trial in metrics.get("trials", []):
        if "settings" in trial:
            words = ", ".join(f"{name} {value:g}" for name, value in trial["settings"].items())
            is_best = trial["settings"] == _config(model)["grid_point"]
        else:
            words = f"learning rate {trial['learning_rate']:g}"
            is_best = trial["learning_rate"] == metrics["recipe"]["learning_rate"]
        yield {"settings": words, "best": is_best, "score": _score(trial)}


def size_of_trees(model: Path) -> dict[str, int]:
    """Return the number of trees of a model of LightGBM and the most leaves of each; empty if an earlier version's."""
    config = _config(model)
    return {name: config[name] for name in ("trees", "leaves") if name in config}


def _score(trial: Mapping[str, Any]) -> str:
    """Return the words of what a trial was judged by."""
    if "failure" in trial:
        return str(trial["failure"])
    for words, names in {
        "AP": ("val_average_precision", "average_precision"),
        "loss": ("val_loss", "log_loss"),
    }.items():
        for name in names:
            if trial.get(name) is not None:
                return f"{words} {trial[name]:.4f}"
    return "withheld"


def _metrics(model: Path) -> dict[str, Any]:
    return _read(model / "metrics.json")


def _config(model: Path) -> dict[str, Any]:
    return _read(model / "config.json")


def _read(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(verified(file).read_bytes()) if is_written(file) else {}
    return content
