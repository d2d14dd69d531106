"""The training loop of pretraining and of every task: steps, validation, early stopping, saved states.

All randomness of a step is seeded from (seed, epoch, step), and the learning rate is a function of the step. So a state
consists of weights, optimiser moments and a few numbers, and a resumed run ends with exactly the same weights.
"""

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import nn

from nest_model.data.locations import ShardRows, describe_rows
from nest_model.data.packed import epoch_steps, seed_of
from nest_model.recipe import Recipe
from nest_model.training.fsdp import load_weights, whole_weights
from nest_model.training.memory import within_memory
from nest_model.training.ranks import flags_on_any_rank, sum_over_ranks
from nest_model.training.resume import Position, StateSaver
from nest_model.training.runtime import Runtime
from nest_model.training.state import StateFolder
from nest_model.training.step_metrics import STEP_METRICS, StepMetrics
from nest_model.training.stop import Stopped
from nest_model.training.task import TrainingTask
from schemas.errors import NestError

log = logging.getLogger("nest")


class NotFiniteError(NestError):
    """A loss is NaN or infinite."""


def fit(
    task: TrainingTask,
    recipe: Recipe,
    runtime: Runtime,
    *,
    seed: int,
    states: StateFolder,
    epochs: int | None = None,
    first_epoch: int = 0,
    trial_epochs: int = 0,
) -> tuple[Position, nn.Module]:
    """Train until the validation stops improving; leave the best epoch's weights in `task.module`.

    Args:
        epochs: stop after so many; the schedule stays the recipe's, and a call without it goes on from there.
        first_epoch: the number of the first epoch, which is that of epochs in earlier stages.
        trial_epochs: how many of the epochs were a trial of a search; to go on from its end is not to resume.

    Returns:
        The final position, and the module as Fabric wraps it, to be called in the training precision.

    Raises:
        NotFiniteError: the loss is not finite.
        NestError: memory ran out, or a state cannot be written.
        Stopped: a stop was requested; the state is saved.
    """
    run = _Run(task, recipe, runtime, seed, states, first_epoch, min(recipe.epochs, epochs or recipe.epochs))
    with runtime.stop.deferred():
        run.resume(trial_epochs)
        while not run.is_over:
            run.epoch()
    load_weights(task.module, run.best_weights, runtime.fabric)
    return run.position, run.module


def adamw(task: TrainingTask, recipe: Recipe, fabric: Fabric) -> torch.optim.AdamW:
    """Return the optimizer of a training; its module is set up first, because sharding replaces the weights."""
    # a fused optimizer would unscale 16-mixed's gradients itself, after they should have been clipped
    has_scaler = getattr(fabric.strategy.precision, "scaler", None) is not None
    is_fused = recipe.clip_norm is None or not has_scaler
    return torch.optim.AdamW(parameter_groups(task, recipe), lr=recipe.learning_rate, fused=is_fused)


def parameter_groups(task: TrainingTask, recipe: Recipe) -> list[dict[str, Any]]:
    """Return AdamW's parameter groups of the trained weights, by weight decay and learning-rate factor."""
    fresh = {id(weight) for weight in task.fresh_weights}
    embeddings = [module for module in task.module.modules() if isinstance(module, nn.Embedding)]
    tables = {id(weight) for embedding in embeddings for weight in embedding.parameters()}
    members: dict[tuple[float, float], list[nn.Parameter]] = {}
    for weight in task.module.parameters():
        if weight.requires_grad:
            decays = recipe.decays == "everything" or (weight.ndim > 1 and id(weight) not in tables)
            place = (
                recipe.weight_decay if decays else 0.0,
                recipe.head_rate if id(weight) in fresh else 1.0,
            )
            members.setdefault(place, []).append(weight)
    return [
        {"params": weights, "weight_decay": decay, "rate_share": share}
        for (decay, share), weights in members.items()
    ]


class _Run:
    def __init__(
        self,
        task: TrainingTask,
        recipe: Recipe,
        runtime: Runtime,
        seed: int,
        states: StateFolder,
        first_epoch: int,
        epochs: int,
    ) -> None:
        self._task, self._recipe, self._runtime, self._seed = task, recipe, runtime, seed
        self._fabric = runtime.fabric
        self.module = self._fabric.setup_module(task.module)  # first, because sharding replaces the weights
        optimizer = adamw(task, recipe, self._fabric)
        self._optimizer = cast("torch.optim.Optimizer", self._fabric.setup_optimizers(optimizer))
        self._state_saver = StateSaver(
            task, optimizer, self._fabric, states, seconds_between_states=runtime.seconds_between_states
        )
        self._step_metrics = StepMetrics(task.padded_rows)
        self._first_epoch, self._epochs = first_epoch, epochs
        self.position = Position(first_epoch)
        self.best_weights = whole_weights(task.module)  # on the first rank alone
        self._steps_per_epoch = math.ceil(len(task.rows) / recipe.examples_per_step)

    @property
    def is_over(self) -> bool:
        """Whether no epoch is left to do, or none has been better for too long."""
        position = self.position
        return self._epochs_done >= self._epochs or position.waited >= self._recipe.patience

    def resume(self, trial_epochs: int = 0) -> None:
        """Resume from the newest saved state, if there is one, and say where, except at the end of a trial."""
        state = self._state_saver.restore()
        if state is not None:
            self.position, self.best_weights = state
            has_not_begun = self._epochs_done == trial_epochs and self.position.step == 0
            if not (self.is_over or has_not_begun):
                self._runtime.telemetry.resumed(self.position.epoch, self.position.step)
        rows_of_an_epoch = int(self._task.rows.sum())
        self._progress = self._runtime.telemetry.progress(
            self._task.stage,
            total=self._epochs * rows_of_an_epoch,
            unit="rows",
            initial_units=self._epochs_done * rows_of_an_epoch + self._rows_done(),
            step_metrics=self._step_metrics,
        )
        if not self.is_over:  # drop the curve points of later steps that an interrupted run wrote
            self._runtime.telemetry.curves(self._steps_done, {})

    def epoch(self) -> None:
        """Run the rest of this epoch, validate and save."""
        position = self.position
        with self._saving_on_stop():
            self._train()
            with self._runtime.stop.interruptible():
                metrics, objective = self._evaluate()
        self._record_epoch(metrics, objective)
        position.epoch, position.step, position.sums = position.epoch + 1, 0, {}
        self._state_saver.save(position, self.best_weights)

    @contextmanager
    def _saving_on_stop(self) -> Iterator[None]:
        position = self.position
        try:
            yield
        except Stopped:
            self._state_saver.save(position, self.best_weights)
            self._fabric.barrier()  # when one rank ends, torchrun kills the others, even while the first one writes
            raise Stopped(
                f"stopped at epoch {position.epoch + 1}, after {position.step} of {self._steps_per_epoch} steps; the "
                f"state is saved in {self._state_saver.states.folder}. Run the same command to continue."
            ) from None

    def _train(self) -> None:
        self.module.train()
        for examples in self._steps()[self.position.step :]:
            self._step(examples)
            self.position.step += 1
            self._progress.advance(int(self._task.rows[examples].sum()), step=self._steps_done)

    def _step(self, examples: np.ndarray) -> None:
        position, recipe = self.position, self._recipe
        step = self._steps_done - self._first_epoch * self._steps_per_epoch
        rate = recipe.rate(step, recipe.epochs * self._steps_per_epoch)
        for group in self._optimizer.param_groups:
            group["lr"] = rate * group["rate_share"]
        totals = within_memory(lambda: self._gradients(examples), self._task, self._runtime)
        if not math.isfinite(totals["loss"]):
            raise self._not_finite("loss", self._task.locate(examples))
        self._save_or_stop()
        if recipe.clip_norm is not None:
            self._fabric.clip_gradients(
                self.module, self._optimizer, max_norm=recipe.clip_norm, error_if_nonfinite=False
            )
        self._optimizer.step()
        self._task.after_step()
        rows = int(self._task.rows[examples].sum())
        self._step_metrics.add(totals, learning_rate=rate, examples=len(examples), rows=rows)
        for name, value in totals.items():
            position.sums[name] = position.sums.get(name, 0.0) + value * len(examples)

    def _gradients(self, examples: np.ndarray) -> dict[str, float]:
        """Compute the gradients of a step; return its losses."""
        self._optimizer.zero_grad()
        step_seed = seed_of(self._seed, self.position.epoch, self.position.step)
        totals: dict[str, float] = {}
        micro_batches = self._task.micro_batches(examples, step_seed)
        for turn, micro_batch in enumerate(micro_batches, start=1):
            with self._fabric.no_backward_sync(self.module, enabled=turn < len(micro_batches)):
                losses = self._task.losses(self.module, micro_batch)
                # gradients are averaged over the ranks but should be summed
                self._fabric.backward(losses["loss"] * self._fabric.world_size)
            for name, value in losses.items():
                totals[name] = totals.get(name, 0.0) + float(value.detach())
        return sum_over_ranks(totals, self._fabric)

    def _save_or_stop(self) -> None:
        """Save the state if due, and stop if any rank should; only here, where the weights gave a finite loss."""
        due = self._state_saver.is_due and self._fabric.is_global_zero
        now = flags_on_any_rank(self._fabric, stop=self._runtime.stop.is_requested, save=due)
        if now["stop"]:
            raise Stopped
        if now["save"]:
            self._state_saver.save(self.position, self.best_weights)

    def _not_finite(self, value_name: str, rows: Sequence[ShardRows] = ()) -> NotFiniteError:
        position = self.position
        place = f"epoch {position.epoch + 1}"  # people count from 1
        if rows:
            place += f", step {position.step + 1}"
        newest, rate = self._state_saver.states.newest, self._recipe.learning_rate
        return not_finite(f"{self._task.stage}: the {value_name}", place, rows, newest, rate)

    def _evaluate(self) -> tuple[dict[str, float], float]:
        self._progress.report()
        self.module.eval()
        with torch.no_grad():
            return within_memory(lambda: self._task.evaluate(self.module), self._task, self._runtime)

    def _record_epoch(self, metrics: dict[str, float], objective: float) -> None:
        """Report an epoch's metrics and keep its weights if they are the best so far."""
        position, telemetry = self.position, self._runtime.telemetry
        train_losses = {
            f"train_{name}": total / len(self._task.rows) for name, total in position.sums.items()
        }
        metrics = train_losses | metrics
        position.history.append({"epoch": position.epoch, **metrics})
        speed = {name: value for name, value in self._progress.last.items() if name in STEP_METRICS}
        telemetry.evaluation(position.epoch, metrics | speed, step=self._steps_done)
        if not math.isfinite(objective):
            raise self._not_finite("validation")
        position.waited += 1
        if objective < position.best:
            position.best, position.best_epoch, position.waited = objective, position.epoch, 0
            self.best_weights = whole_weights(self._task.module)

    @property
    def _epochs_done(self) -> int:
        return self.position.epoch - self._first_epoch

    @property
    def _steps_done(self) -> int:
        """The steps done, those of earlier stages too."""
        return self.position.epoch * self._steps_per_epoch + self.position.step

    def _steps(self) -> list[np.ndarray]:
        return epoch_steps(
            len(self._task.rows),
            self._recipe.examples_per_step,
            seed=self._seed,
            epoch=self.position.epoch,
        )

    def _rows_done(self) -> int:
        steps = self._steps()[: self.position.step]
        return int(sum(self._task.rows[examples].sum() for examples in steps))


def not_finite(
    value_name: str, place: str, rows: Sequence[ShardRows], last_good: Path | None, learning_rate: float
) -> NotFiniteError:
    """Return the error of a loss that is NaN or infinite, with the step, its rows, the last state and what to try.

    Args:
        value_name: the stage and the loss. place: the epoch and step.
        rows: of the step's batch; empty for a validation.
    """
    batch_rows = f", on {describe_rows(rows)}" if rows else ""
    state = f"the last good state is {last_good}" if last_good else "no state is saved yet"
    try_first = "Resume from it with" if last_good else "Train with"
    suspect = ", or check these rows for NaN or infinite values" if rows else ""
    return NotFiniteError(
        f"{value_name} is not finite at {place}{batch_rows}; {state}. {try_first} --precision 32-true, or train again "
        f"from the beginning with a lower --learning-rate (now {learning_rate:g}){suspect}."
    )
