"""The search of a learning rate: the same training with several rates, judged by the validation patients alone."""

import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from lightning_fabric import Fabric
from torch import nn

from nest_model.recipe import Recipe
from nest_model.training.resume import Position
from nest_model.training.runtime import Runtime
from nest_model.training.state import StateFolder
from nest_model.training.task import TrainingTask
from nest_model.training.trainer import NotFiniteError, fit
from schemas.errors import NestError

log = logging.getLogger("nest")

SearchedTask = TypeVar("SearchedTask", bound=TrainingTask)


FURTHER_TRIALS = 3
"""While a search's highest or lowest rate is its best, the next one beyond is tried, at most so many in all."""

TRIAL_EPOCHS = 3
TRIAL_SHARE = 1 / 6
"""A trial that is cut has this share of the epochs, so that it goes past the warm-up, and TRIAL_EPOCHS at least."""


@dataclass(frozen=True)
class Training(Generic[SearchedTask]):
    """A finished training: the task with the weights of its best epoch."""

    task: SearchedTask
    recipe: Recipe  # with the learning rate it had
    position: Position
    module: nn.Module  # the task's, as Fabric wraps it
    trials: list[dict[str, Any]]  # of the search, each with its rate and the metrics of its best epoch

    @property
    def record(self) -> dict[str, Any]:
        """The entry of `metrics.json` on the search; empty without one."""
        return {"trials": self.trials} if self.trials else {}


def train(
    task: SearchedTask,
    recipe: Recipe,
    runtime: Runtime,
    *,
    make_another: Callable[[], SearchedTask],
    seed: int,
    states: StateFolder,
    cuts_trials: bool = False,
    first_epoch: int = 0,
) -> Training[SearchedTask]:
    """Train with the recipe's learning rate; with `rate_factors`, with the best of that rate times each of them.

    If the best rate is the highest or lowest, the search goes on beyond it, so that the grid does not choose. A trial
    is the training itself, and the best one goes on from there: it ends with the weights of a training that had no
    other rate. Each trial has its own curves.

    Args:
        task: with its initial weights; a search does not train it.
        make_another: returns the same task with the same initial weights again.
        cuts_trials: end a trial after TRIAL_SHARE of the epochs; else when it stops by itself.
        first_epoch: see `fit`.

    Raises:
        NestError: as `fit`, or a rate is no finite number. A trial whose loss is not finite, also later, gives way to
            the next best; it is an error if no trial is left.
    """
    arguments: dict[str, Any] = {"seed": seed, "first_epoch": first_epoch}
    if not recipe.rate_factors:
        position, module = fit(task, recipe, runtime, states=states, **arguments)
        return Training(task, recipe, position, module, [])
    epochs = max(TRIAL_EPOCHS, math.ceil(recipe.epochs * TRIAL_SHARE)) if cuts_trials else recipe.epochs
    trials: list[_Trial] = []
    for rate in _rates(recipe, trials):
        log.info("learning rate %g: trial %d, at least %d", rate, len(trials) + 1, len(recipe.rate_factors))
        trial = _Trial(replace(recipe, learning_rate=rate, rate_factors=()), epochs)
        trial.run(make_another(), runtime, states, **arguments)
        runtime.telemetry.trial(len(trials), trial.numbers)
        trials.append(trial)
    while True:
        best = min(trials, key=lambda trial: trial.objective)
        if best.failure is not None:
            raise best.failure
        log.info("learning rate %g is the best of %d", best.recipe.learning_rate, len(trials))
        task = make_another()
        try:
            position, module = best.fit(task, runtime, states, trial_epochs=epochs, **arguments)
        except NotFiniteError as error:
            best.fail(error)
        else:
            return Training(task, best.recipe, position, module, [trial.record for trial in trials])


def _rates(recipe: Recipe, trials: Sequence["_Trial"]) -> Iterator[float]:
    """Yield the rates of the grid, then those beyond its ends, for which it looks at the finished trials."""
    rates = [recipe.learning_rate * factor for factor in recipe.rate_factors]
    if not all(map(math.isfinite, rates)):
        raise NestError(
            f"rate_factors: a factor times the learning rate {recipe.learning_rate:g} is no finite number; take "
            "factors near 1."
        )
    yield from rates
    for _ in range(FURTHER_TRIALS):
        rate = _rate_beyond(trials)
        if rate is None:
            return
        yield rate


def _rate_beyond(trials: Sequence["_Trial"]) -> float | None:
    """Return the rate as far beyond the best as its neighbour is before it; None if the best lies between others."""
    by_rate = sorted(trials, key=lambda trial: trial.recipe.learning_rate)
    best = min(range(len(by_rate)), key=lambda index: by_rate[index].objective)
    neighbours = {0: 1, len(by_rate) - 1: len(by_rate) - 2}
    if best not in neighbours:
        return None
    rate = by_rate[best].recipe.learning_rate
    beyond = rate * (rate / by_rate[neighbours[best]].recipe.learning_rate)
    return beyond if 0 < beyond < math.inf else None


@dataclass
class _Trial:
    recipe: Recipe
    epochs: int
    objective: float = math.inf
    metrics: dict[str, Any] = field(default_factory=dict)  # of the validation patients, after the best epoch
    failure: NotFiniteError | None = None

    def run(self, task: TrainingTask, runtime: Runtime, states: StateFolder, **arguments: Any) -> None:
        """Train and keep what the validation patients say, but not the weights, which are in the saved state."""
        try:
            position, _ = self.fit(task, runtime, states, epochs=self.epochs, **arguments)
        except NotFiniteError as error:
            self.fail(error)
            return
        self.objective = position.best
        self.metrics = self._validation(position)

    def fail(self, error: NotFiniteError) -> None:
        """Take the trial as the worst, and do not keep what its traceback holds."""
        log.warning("learning rate %g: the loss was not finite", self.recipe.learning_rate)
        self.objective, self.failure = math.inf, error.with_traceback(None)

    def fit(
        self, task: TrainingTask, runtime: Runtime, states: StateFolder, **arguments: Any
    ) -> tuple[Position, nn.Module]:
        """Train or go on, with states and curves of its own."""
        name = f"rate_{self.recipe.learning_rate}"
        runtime = replace(runtime, telemetry=runtime.telemetry.with_curves_of(name))
        return fit(task, self.recipe, runtime, states=states.of_stage(name), **arguments)

    def _validation(self, position: Position) -> dict[str, Any]:
        """Return the validation metrics of the trial's best epoch, also where a stopped run went on after it."""
        epochs, best = position.history[: self.epochs], position.best_epoch
        if len(epochs) < len(position.history):  # a pretraining, which is judged by its loss
            # without a loss, few patients validate, and no epoch has anything to report
            best = min(epochs, key=lambda epoch: float(epoch.get("val_loss", math.inf)))["epoch"]
        metrics = next((epoch for epoch in epochs if epoch["epoch"] == best), {})
        return {name: value for name, value in metrics.items() if name.startswith("val_")}

    @property
    def numbers(self) -> dict[str, float | None]:
        """The rate and the validation metrics, of which a trial that failed at once has none."""
        return {"learning_rate": self.recipe.learning_rate, **self.metrics}

    @property
    def record(self) -> dict[str, Any]:
        """The entry of `metrics.json`."""
        return self.numbers | ({} if self.failure is None else {"failure": "the loss was not finite"})


def with_rate_of_first_seed(
    recipe: Mapping[str, Any], first_model: Path, fabric: Fabric
) -> Mapping[str, Any]:
    """Return a recipe's changes for a further seed: all seeds have the rate that the first seed's search came to.

    Args:
        first_model: the first seed's folder.
    """
    if not recipe.get("rate_factors"):
        return recipe
    rate = None
    if fabric.is_global_zero:  # other ranks may not see the folder
        rate = json.loads((first_model / "metrics.json").read_bytes())["recipe"]["learning_rate"]
    return {**recipe, "learning_rate": fabric.broadcast(rate), "rate_factors": None}
