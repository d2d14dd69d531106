"""The search of a learning rate: the same training with several rates, judged by the validation patients alone."""

import json
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from lightning_fabric import Fabric
from torch import nn

from nest_model.training.recipe import Recipe
from nest_model.training.resume import Position
from nest_model.training.runtime import Runtime
from nest_model.training.state import StateFolder
from nest_model.training.task import TrainingTask
from nest_model.training.trainer import NotFiniteError, fit

log = logging.getLogger("nest")

Task = TypeVar("Task", bound=TrainingTask)


@dataclass(frozen=True)
class Training(Generic[Task]):
    """A finished training: the task with the weights of its best epoch."""

    task: Task
    recipe: Recipe  # with the learning rate it had
    position: Position
    module: nn.Module  # the task's, as Fabric wraps it
    trials: list[dict[str, Any]]  # of the search, each with its rate and the metrics of its best epoch

    @property
    def record(self) -> dict[str, Any]:
        """The entry of `metrics.json` on the search; empty without one."""
        return {"trials": self.trials} if self.trials else {}


def train(
    task: Task,
    recipe: Recipe,
    runtime: Runtime,
    *,
    make_another: Callable[[], Task],
    seed: int,
    states: Callable[[Recipe], StateFolder],
    trial_epochs: int | None = None,
    first_epoch: int = 0,
) -> Training[Task]:
    """Train with the recipe's learning rate; with `rate_factors`, with the best of that rate times each of them.

    A trial is the training itself, and the best one goes on from there: it ends with the weights of a training that had
    no other rate. Each trial has its own curves.

    Args:
        task: with its initial weights.
        make_another: returns the same task with the same initial weights again.
        trial_epochs: of each trial; None: until it stops by itself.
        first_epoch: see `fit`.
        states: returns where the states of a training with this recipe are saved.

    Raises:
        NestError: as `fit`. A trial whose loss is not finite is the worst; it is an error if all are.
    """
    if not recipe.rate_factors:
        position, module = fit(
            task, recipe, runtime, seed=seed, states=states(recipe), first_epoch=first_epoch
        )
        return Training(task, recipe, position, module, [])
    trials = [_Trial(_with_rate(recipe, factor)) for factor in recipe.rate_factors]
    for number, trial in enumerate(trials):
        log.info("learning rate %g: trial %d of %d", trial.recipe.learning_rate, number + 1, len(trials))
        trial.run(
            make_another() if number else task,
            runtime,
            seed=seed,
            states=states(trial.recipe),
            epochs=trial_epochs,
            first_epoch=first_epoch,
        )
        runtime.telemetry.trial(number, trial.numbers)
    best = min(trials, key=lambda trial: trial.objective)
    if best.failure is not None:
        raise best.failure
    log.info("learning rate %g is the best on the validation patients", best.recipe.learning_rate)
    task = make_another()
    position, module = best.fit(task, runtime, seed=seed, states=states(best.recipe), first_epoch=first_epoch)
    return Training(task, best.recipe, position, module, [trial.record for trial in trials])


def _with_rate(recipe: Recipe, factor: float) -> Recipe:
    """Return the recipe of a trial: with another rate, and without a search."""
    return replace(recipe, learning_rate=recipe.learning_rate * factor, rate_factors=())


@dataclass
class _Trial:
    recipe: Recipe
    objective: float = math.inf
    metrics: dict[str, Any] = field(default_factory=dict)  # of the validation patients, after the best epoch
    failure: NotFiniteError | None = None

    def run(self, task: TrainingTask, runtime: Runtime, **arguments: Any) -> None:
        """Train and keep what the validation patients say, but not the weights, which are in the saved state."""
        try:
            position, _ = self.fit(task, runtime, **arguments)
        except NotFiniteError as error:
            log.warning("%s", error)
            self.failure = error
            return
        best_epoch = next((epoch for epoch in position.history if epoch["epoch"] == position.best_epoch), {})
        self.objective = position.best
        self.metrics = {name: value for name, value in best_epoch.items() if name.startswith("val_")}

    def fit(self, task: TrainingTask, runtime: Runtime, **arguments: Any) -> tuple[Position, nn.Module]:
        """Train or go on, with curves of its own."""
        telemetry = runtime.telemetry.with_curves_of(f"rate_{self.recipe.learning_rate:g}")
        runtime = replace(runtime, telemetry=telemetry)
        return fit(task, self.recipe, runtime, **arguments)

    @property
    def numbers(self) -> dict[str, float | None]:
        """The rate and the validation metrics, of which a trial that failed has none."""
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
