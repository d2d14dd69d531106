"""Several seeds of one training: each but the first in `seeds/<seed>` below its folders, with the same contract.

`metrics.json` is the last file of a model that is written. It has the key of the training and the hash of all the
other files of the model, and by these a seed that is trained is recognised.
"""

import hashlib
import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from nest_model.training.not_trainable import forget
from nest_model.training.telemetry import Telemetry
from schemas.io.hashing import file_sha256
from schemas.io.outputs import remove_empty

if TYPE_CHECKING:  # it loads torch
    from lightning_fabric import Fabric

log = logging.getLogger("nest")

FOLDER = "seeds"
Metrics = Mapping[str, float | None]
Train = Callable[[int, Path, Path, Telemetry], Metrics | None]
"""Trains with a seed into a model's folder and a file of predictions; None: the task cannot be learnt."""


def model_of_seed(out: Path, seed: int) -> Path:
    """Return the folder of a model that is not of the first seed, by that of the first."""
    return out / FOLDER / str(seed)


def predictions_of_seed(predictions: Path, seed: int) -> Path:
    """Return where the predictions of a seed that is not the first lie, by those of the first."""
    return predictions.parent / FOLDER / str(seed) / predictions.name


def further_seeds(folder: Path) -> list[int]:
    """Return the seeds there are below the folder of the first one's model or predictions."""
    names = (path.name for path in (folder / FOLDER).glob("*"))
    return sorted(int(name) for name in names if name.isdigit())


def forget_further(out: Path, predictions: Path, seeds: Sequence[int] = ()) -> None:
    """Remove the models and predictions of every seed but the first and these."""
    others = {*further_seeds(out), *further_seeds(predictions.parent)} - set(seeds)
    if others:
        log.info("removing the models of seeds that are not named: %s", ", ".join(map(str, sorted(others))))
    for seed in sorted(others):
        model, file = model_of_seed(out, seed), predictions_of_seed(predictions, seed)
        forget(model, file)
        for folder in (model, file.parent):
            remove_empty(folder)
    for folder in (out / FOLDER, predictions.parent / FOLDER):
        remove_empty(folder)


def train_seeds(
    train: Train, seeds: Sequence[int], out: Path, predictions: Path, telemetry: Telemetry, *, writes: bool
) -> None:
    """Train with each seed in turn; report the mean and the standard deviation of each metric over the seeds.

    The models of seeds that are no longer named go when all that are named stand: a command that fails removes none.

    Args:
        writes: whether this process removes the models of other seeds; of several ranks the first does.
    """
    first, *others = seeds
    results = []
    for number, seed in enumerate(seeds, start=1):
        if others:
            telemetry.write("seed", seed=seed, number=number, total=len(seeds))
            log.info("seed %d, %d of %d", seed, number, len(seeds))
        model = out if seed == first else model_of_seed(out, seed)
        file = predictions if seed == first else predictions_of_seed(predictions, seed)
        result = train(seed, model, file, telemetry.with_curves_in(model))
        if result is None:
            if writes:
                forget_further(out, predictions)
            return
        results.append(result)
    if writes:
        forget_further(out, predictions, others)
    if others:
        telemetry.result(over_seeds(results))


def over_seeds(results: Sequence[Metrics]) -> dict[str, float]:
    """Return the mean of each metric over the seeds, and as `<name>_sd` its standard deviation.

    A metric that a seed has not, or not as a finite number, is left out.
    """
    summary = {}
    for name in results[0]:
        values = [float(value) for result in results if (value := result.get(name)) is not None]
        if len(values) == len(results) and all(map(math.isfinite, values)):
            summary |= {name: fmean(values), f"{name}_sd": stdev(values)}
    return summary


def run_record(run_key: str, outputs: Sequence[Path]) -> dict[str, str]:
    """Return what `metrics.json` says of the training it closes.

    Args:
        outputs: every other file that the training wrote.
    """
    return {"run_key": run_key, "outputs_sha256": _sha256_of_all(outputs)}


def finished_metrics(
    out: Path, run_key: str, outputs: Sequence[Path], fabric: "Fabric"
) -> dict[str, Any] | None:
    """Return `metrics.json` of a model that this very training wrote, whole and unchanged since; else None.

    The first rank decides for all: the others may not see the folder.
    """
    return fabric.broadcast(_finished_metrics(out, run_key, outputs) if fabric.is_global_zero else None)


def _finished_metrics(out: Path, run_key: str, outputs: Sequence[Path]) -> dict[str, Any] | None:
    try:
        metrics = json.loads((out / "metrics.json").read_bytes())
        record = run_record(run_key, outputs)
    except (OSError, ValueError):  # a file is missing or is damaged
        return None
    is_finished = isinstance(metrics, dict) and record.items() <= metrics.items()
    return metrics if is_finished else None


def _sha256_of_all(files: Sequence[Path]) -> str:
    return hashlib.sha256("\n".join(map(file_sha256, files)).encode()).hexdigest()
