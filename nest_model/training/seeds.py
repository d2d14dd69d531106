"""Train one model with several seeds: all but the first are in `seeds/<seed>`, with the same contract.

`metrics.json` is written last. It holds the key of the training and the hash of all other files of the model, by which
a trained seed is recognised.
"""

import hashlib
import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from nest_model.training.not_trainable import remove_model_outputs
from nest_model.training.telemetry import Telemetry
from schemas.io.hashing import file_sha256
from schemas.io.outputs import remove_empty

if TYPE_CHECKING:  # loads torch
    from lightning_fabric import Fabric

log = logging.getLogger("nest")

FOLDER = "seeds"
Metrics = Mapping[str, float | None]
Train = Callable[[int, Path, Path, Telemetry], Metrics | None]
"""Trains with a seed and writes a model's folder and a predictions file; returns None if the task cannot be learnt."""


def model_of_seed(out: Path, seed: int) -> Path:
    """Return the model folder of a later seed, given the first seed's."""
    return out / FOLDER / str(seed)


def predictions_of_seed(predictions: Path, seed: int) -> Path:
    """Return the predictions file of a later seed, given the first seed's."""
    return predictions.parent / FOLDER / str(seed) / predictions.name


def list_other_seeds(folder: Path) -> list[int]:
    """List the seeds below the folder of the first seed's model or predictions."""
    names = (path.name for path in (folder / FOLDER).glob("*"))
    return sorted(int(name) for name in names if name.isdigit())


def remove_other_seeds(out: Path, predictions: Path, seeds: Sequence[int] = ()) -> None:
    """Remove the models and predictions of all seeds but the first and the given ones."""
    surplus = {*list_other_seeds(out), *list_other_seeds(predictions.parent)} - set(seeds)
    if surplus:
        log.info("removing the models of seeds not requested: %s", ", ".join(map(str, sorted(surplus))))
    for seed in sorted(surplus):
        model, file = model_of_seed(out, seed), predictions_of_seed(predictions, seed)
        remove_model_outputs(model, file)
        for folder in (model, file.parent):
            remove_empty(folder)
    for folder in (out / FOLDER, predictions.parent / FOLDER):
        remove_empty(folder)


def train_seeds(
    train: Train, seeds: Sequence[int], out: Path, predictions: Path, telemetry: Telemetry, *, writes: bool
) -> None:
    """Train with each seed in turn, and report each metric's mean and standard deviation over the seeds.

    Models of seeds no longer requested are removed once all requested ones are trained; a failing command removes none.

    Args:
        writes: whether this process removes models of other seeds; with several ranks the first one does.
    """
    first, *other_seeds = seeds
    results = []
    for number, seed in enumerate(seeds, start=1):
        if other_seeds:
            telemetry.write("seed", seed=seed, number=number, total=len(seeds))
            log.info("seed %d, %d of %d", seed, number, len(seeds))
        model = out if seed == first else model_of_seed(out, seed)
        file = predictions if seed == first else predictions_of_seed(predictions, seed)
        result = train(seed, model, file, telemetry.with_curves_in(model))
        if result is None:
            if writes:
                remove_other_seeds(out, predictions)
            return
        results.append(result)
    if writes:
        remove_other_seeds(out, predictions, other_seeds)
    if other_seeds:
        telemetry.result(seed_statistics(results))


def seed_statistics(results: Sequence[Metrics]) -> dict[str, float]:
    """Return each metric's mean over the seeds, and its standard deviation as `<name>_sd`.

    A metric that is missing or not finite for some seed is left out.
    """
    summary: dict[str, float] = {}
    for name in results[0]:
        values = [float(value) for result in results if (value := result.get(name)) is not None]
        if len(values) == len(results) and all(map(math.isfinite, values)):
            summary |= {name: fmean(values), f"{name}_sd": stdev(values)}
    return summary


def run_record(run_key: str, outputs: Sequence[Path]) -> dict[str, str]:
    """Return the entries of `metrics.json` that identify the training.

    Args:
        outputs: every other file the training wrote.
    """
    return {"run_key": run_key, "outputs_sha256": _sha256_of_all(outputs)}


def finished_metrics_on_ranks(
    out: Path, run_key: str, outputs: Sequence[Path], fabric: "Fabric"
) -> dict[str, Any] | None:
    """Return `finished_metrics` of the first rank, which decides for all: others may not see the folder."""
    return fabric.broadcast(finished_metrics(out, run_key, outputs) if fabric.is_global_zero else None)


def finished_metrics(out: Path, run_key: str, outputs: Sequence[Path]) -> dict[str, Any] | None:
    """Return a model's `metrics.json` if this training wrote the model and no file has changed since; else None."""
    try:
        metrics = json.loads((out / "metrics.json").read_bytes())
        record = run_record(run_key, outputs)
    except (OSError, ValueError):  # a file is missing or damaged
        return None
    is_finished = isinstance(metrics, dict) and record.items() <= metrics.items()
    return metrics if is_finished else None


def _sha256_of_all(files: Sequence[Path]) -> str:
    return hashlib.sha256("\n".join(map(file_sha256, files)).encode()).hexdigest()
