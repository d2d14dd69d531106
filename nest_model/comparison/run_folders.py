"""A run as its folder says: the settings it was trained with, its curves, and its predictions."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nest_model.data.predictions import Predictions, read_predictions, same_rows
from nest_model.training.seeds import list_other_seeds, predictions_of_seed
from schemas.errors import InputError

SETTINGS = ("system", "model", "recipe", "dropout", "settings", "grid_point", "counts")
"""What of a model's `config.json` is a setting; all else is a hash, a count or a result."""
TREES = "trees"
"""The system of a model that names none."""

OF_TRAINING = (
    "recipe",
    "preset",
    "seed",
    "frozen",
    "start",
    "pretraining_seed",
    "patient_share",
    "leave_out_last_set",
)


@dataclass(frozen=True)
class Run:
    """One model's folder."""

    name: str
    folder: Path
    settings: Mapping[str, str]
    history: Sequence[Mapping[str, Any]]  # epochs
    validation: Mapping[str, float]
    predictions: Predictions | None  # None: pretrained, or their file is elsewhere


def read_runs(folders: Sequence[Path], *, least: int = 2) -> list[Run]:
    """Return the runs in these folders, each by the shortest end of its path that no other has.

    Args:
        least: how many there must be.

    Raises:
        InputError: there are too few folders, one is named twice, or one holds no model.
    """
    if len(folders) < least:
        raise InputError("compare needs the folders of two models or more.")
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise InputError("the folder of a model is named twice; name each once.")
    names = short_names([folder.resolve() for folder in folders])
    return [_read(name, folder) for name, folder in zip(names, folders, strict=True)]


def predictions_by_name(folders: Sequence[Path]) -> dict[str, Predictions]:
    """Return the predictions of the models in these folders, named as `read_runs` names them.

    Raises:
        InputError: a folder is named twice, holds no model, or its predictions are elsewhere.
    """
    predictions = {}
    for run in read_runs(folders, least=0):
        if run.predictions is None:
            raise InputError(
                f"{run.folder}: there are no predictions in it or in its source's reports; let `finetune` write them "
                f"with `--predictions {run.folder / 'predictions.parquet'}`."
            )
        predictions[run.name] = run.predictions
    return predictions


def short_names(folders: Sequence[Path]) -> list[str]:
    """Return the last parts of each path, as many as tell the paths apart."""
    for length in range(1, max((len(folder.parts) for folder in folders), default=0) + 1):
        names = ["/".join(folder.parts[-length:]) for folder in folders]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]


def _read(name: str, folder: Path) -> Run:
    try:
        config = json.loads((folder / "config.json").read_text())
        metrics = json.loads((folder / "metrics.json").read_text())
    except (OSError, ValueError):
        raise InputError(
            f"{folder}: holds no finished model (config.json and metrics.json); name the folder of a trained model."
        ) from None
    training = config.get("training", {})
    settings = {"system": TREES} | {key: config[key] for key in SETTINGS if key in config}
    settings |= {key: training[key] for key in OF_TRAINING if key in training}
    return Run(
        name=name,
        folder=folder,
        settings=dict(_flat(settings)),
        history=metrics.get("history", []),
        validation=metrics.get("validation", config.get("validation", {})),
        predictions=_predictions(folder),
    )


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return nested settings as `recipe.epochs` and its value in words."""
    pairs: list[tuple[str, str]] = []
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            pairs += _flat(value, f"{name}.")
        else:
            pairs.append((name, json.dumps(value) if not isinstance(value, str) else value))
    return pairs


def _predictions(folder: Path) -> Predictions | None:
    """Return a run's predictions, with those of its further seeds: in it, below it, or in its source's reports."""
    real = folder.resolve()
    places = [
        real,
        real / "predictions",
        real.parents[1] / "reports" / real.name if len(real.parents) > 1 else real,
    ]
    file = next((path for place in places if (path := place / "predictions.parquet").is_file()), None)
    if file is None:
        return None
    first = read_predictions(file)
    further = [read_predictions(predictions_of_seed(file, seed)) for seed in list_other_seeds(file.parent)]
    return first.with_seeds([seed for seed in further if same_rows(first, seed)])
