"""Several seeds of one training: each but the first in `seeds/<seed>` below its folders, with the same contract."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

from nest_model.not_trainable import forget
from nest_model.telemetry import Telemetry
from schemas.io.outputs import remove_empty
from schemas.io.verify import is_written

log = logging.getLogger("nest")

FOLDER = "seeds"
Train = Callable[[int, Path, Path, Telemetry], Mapping[str, float | None] | None]
"""Trains with a seed into a model's folder and a file of predictions; None: the task cannot be learnt."""


def model_of_seed(out: Path, seed: int) -> Path:
    """Return the folder of a model that is not of the first seed, by that of the first."""
    return out / FOLDER / str(seed)


def predictions_of_seed(predictions: Path, seed: int) -> Path:
    """Return where the predictions of a seed that is not the first lie, by those of the first."""
    return predictions.parent / FOLDER / str(seed) / predictions.name


def further_seeds(folder: Path) -> list[int]:
    """Return the seeds there are below the folder of the first one's model or predictions."""
    return sorted(int(one.name) for one in (folder / FOLDER).glob("*") if one.name.isdigit())


def further_predictions(predictions: Path) -> dict[int, Path]:
    """Return the predictions of every seed but the first."""
    files = {seed: predictions_of_seed(predictions, seed) for seed in further_seeds(predictions.parent)}
    return {seed: file for seed, file in files.items() if is_written(file)}


def forget_further(out: Path, predictions: Path, seeds: Sequence[int] = ()) -> None:
    """Remove the models and predictions of every seed but the first and these."""
    for seed in {*further_seeds(out), *further_seeds(predictions.parent)} - set(seeds):
        model, file = model_of_seed(out, seed), predictions_of_seed(predictions, seed)
        forget(model, file)
        for folder in (model, file.parent):
            remove_empty(folder)
    for folder in (out / FOLDER, predictions.parent / FOLDER):
        remove_empty(folder)


def train_seeds(
    train: Train, seeds: Sequence[int], out: Path, predictions: Path, telemetry: Telemetry, *, writes: bool
) -> None:
    """Train with each seed in turn, and tell the mean and the standard deviation of what came of them.

    Args:
        writes: whether this process removes what seeds left that are asked for no more; of several ranks the first.
    """
    first, *others = seeds
    if writes:
        forget_further(out, predictions, others)
    results = []
    for place, seed in enumerate(seeds):
        if others:
            telemetry.write("seed", seed=seed, number=place + 1, total=len(seeds))
            log.info("seed %d, %d of %d", seed, place + 1, len(seeds))
        model = out if seed == first else model_of_seed(out, seed)
        file = predictions if seed == first else predictions_of_seed(predictions, seed)
        result = train(seed, model, file, telemetry.with_curves_in(model))
        if result is None:
            if writes:
                forget_further(out, predictions)
            return
        results.append(result)
    if others:
        telemetry.result(over_seeds(results))


def over_seeds(results: Sequence[Mapping[str, float | None]]) -> dict[str, float]:
    """Return the mean of each number over the seeds, and beside it as `<name>_sd` its standard deviation."""
    found = {}
    for name in results[0]:
        values = [float(value) for one in results if (value := one.get(name)) is not None]
        if len(values) == len(results) and all(map(math.isfinite, values)):
            found |= {name: fmean(values), f"{name}_sd": stdev(values)}
    return found
