"""The one training loop, for pretraining and for every task: steps, validation, early stopping, saved states.

All that is random in a step is seeded from (seed, epoch, step), and the learning rate is a function of the
step, so a state is weights, optimiser and a few numbers, and a killed run ends with the very same weights.
"""

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from nest_model.data.locations import ShardRows, in_words
from nest_model.data.packed import epoch_steps, seed_of
from nest_model.training.fsdp import load_weights, whole_weights
from nest_model.training.memory import within_memory
from nest_model.training.ranks import anywhere, total
from nest_model.training.recipe import Recipe
from nest_model.training.resume import Position, Resumption
from nest_model.training.runtime import Runtime
from nest_model.training.state import StateFolder
from nest_model.training.step_metrics import MEASURED, Measured
from nest_model.training.stop import Stopped
from nest_model.training.task import Trainee
from schemas.errors import NestError

log = logging.getLogger("nest")


def fit(
    trainee: Trainee, recipe: Recipe, runtime: Runtime, *, seed: int, states: StateFolder
) -> tuple[Position, nn.Module]:
    """Train until the validation stops improving; leave the best epoch's weights in `trainee.module`.

    Returns:
        Where the run ended, and the module as Fabric wraps it, to be called in the precision it was trained in.

    Raises:
        NestError: the loss is not finite, memory ran out, or a state cannot be written.
        Stopped: it was asked for; the state is saved.
    """
    run = _Run(trainee, recipe, runtime, seed, states)
    with runtime.stop.deferred():
        run.resume()
        while run.position.epoch < recipe.epochs and run.position.waited < recipe.patience:
            run.epoch()
    load_weights(trainee.module, run.best_weights, runtime.fabric)
    return run.position, run.module


def groups(trainee: Trainee, recipe: Recipe) -> list[dict[str, Any]]:
    """Return AdamW's groups of the weights that are trained, by their decay and their share of the learning rate."""
    fresh = {id(weight) for weight in trainee.fresh_weights}
    embeddings = [module for module in trainee.module.modules() if isinstance(module, nn.Embedding)]
    tables = {id(weight) for embedding in embeddings for weight in embedding.parameters()}
    members: dict[tuple[float, float], list[nn.Parameter]] = {}
    for weight in trainee.module.parameters():
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
        self, trainee: Trainee, recipe: Recipe, runtime: Runtime, seed: int, states: StateFolder
    ) -> None:
        self._trainee, self._recipe, self._runtime, self._seed = trainee, recipe, runtime, seed
        self._fabric = runtime.fabric
        self.module = self._fabric.setup_module(trainee.module)  # first: sharded weights are other tensors
        # a fused optimizer takes 16-mixed's scale off itself, after the gradients should have been clipped
        scaled = getattr(self._fabric.strategy.precision, "scaler", None) is not None
        fused = recipe.clip_norm is None or not scaled
        adamw = torch.optim.AdamW(groups(trainee, recipe), lr=recipe.learning_rate, fused=fused)
        self._optimizer = self._fabric.setup_optimizers(adamw)
        self._resumption = Resumption(
            trainee, adamw, self._fabric, states, seconds_between_states=runtime.seconds_between_states
        )
        self._measured = Measured(trainee.padded_rows)
        self.position = Position()
        self.best_weights = whole_weights(trainee.module)  # on the first rank alone
        self._steps_per_epoch = math.ceil(len(trainee.rows) / recipe.examples_per_step)

    def resume(self) -> None:
        """Go on from the newest saved state, if there is one."""
        restored = self._resumption.restore()
        if restored is not None:
            self.position, self.best_weights = restored
            log.info("going on from epoch %d, step %d.", self.position.epoch, self.position.step)
        rows_of_an_epoch = int(self._trainee.rows.sum())
        self._progress = self._runtime.telemetry.progress(
            self._trainee.stage,
            total=self._recipe.epochs * rows_of_an_epoch,
            unit="rows",
            done=self.position.epoch * rows_of_an_epoch + self._rows_done(),
            measured=self._measured,
        )
        # what a run before told of later steps is undone
        self._runtime.telemetry.curves(self._steps_done, {})

    def epoch(self) -> None:
        """Run the rest of this epoch, validate, save."""
        position = self.position
        with self._saved_when_stopped():
            self._train()
            with self._runtime.stop.heeded():
                metrics, objective = self._evaluate()
        self._judge(metrics, objective)
        position.epoch, position.step, position.sums = position.epoch + 1, 0, {}
        self._resumption.save(position, self.best_weights)

    @contextmanager
    def _saved_when_stopped(self) -> Iterator[None]:
        position = self.position
        try:
            yield
        except Stopped:
            self._resumption.save(position, self.best_weights)
            self._fabric.barrier()  # a rank that ends would have the others killed while the first still writes
            raise Stopped(
                f"stopped at epoch {position.epoch}, step {position.step} of {self._steps_per_epoch}; the state is "
                f"saved in {self._resumption.states.folder}. Run the same command to go on."
            ) from None

    def _train(self) -> None:
        self.module.train()
        for examples in self._steps()[self.position.step :]:
            self._step(examples)
            self.position.step += 1
            self._progress.advance(int(self._trainee.rows[examples].sum()), step=self._steps_done)

    def _step(self, examples: np.ndarray) -> None:
        position, recipe = self.position, self._recipe
        rate = recipe.rate(self._steps_done, recipe.epochs * self._steps_per_epoch)
        for group in self._optimizer.param_groups:
            group["lr"] = rate * group["rate_share"]
        totals = within_memory(lambda: self._gradients(examples), self._trainee, self._runtime)
        if not math.isfinite(totals["loss"]):
            raise self._not_finite("loss", self._trainee.where(examples))
        self._keep()
        if recipe.clip_norm is not None:
            self._fabric.clip_gradients(
                self.module, self._optimizer, max_norm=recipe.clip_norm, error_if_nonfinite=False
            )
        self._optimizer.step()
        rows = int(self._trainee.rows[examples].sum())
        self._measured.add(totals, learning_rate=rate, examples=len(examples), rows=rows)
        for name, value in totals.items():
            position.sums[name] = position.sums.get(name, 0.0) + value

    def _gradients(self, examples: np.ndarray) -> dict[str, float]:
        """Fill the gradients of a step, from none; return its losses."""
        self._optimizer.zero_grad()
        step_seed = seed_of(self._seed, self.position.epoch, self.position.step)
        totals: dict[str, float] = {}
        parts = self._trainee.parts(examples, step_seed)
        for turn, part in enumerate(parts, start=1):
            with self._fabric.no_backward_sync(self.module, enabled=turn < len(parts)):
                losses = self._trainee.losses(self.module, part)
                # gradients are averaged over the ranks, and should add up
                self._fabric.backward(losses["loss"] * self._fabric.world_size)
            for name, value in losses.items():
                totals[name] = totals.get(name, 0.0) + float(value.detach())
        return total(totals, self._fabric)

    def _keep(self) -> None:
        """Save the state if it is time to; stop if a rank is asked to: here, where the weights gave a finite loss."""
        due = self._resumption.due and self._fabric.is_global_zero
        now = anywhere(self._fabric, stop=self._runtime.stop.asked, save=due)
        if now["stop"]:
            raise Stopped
        if now["save"]:
            self._resumption.save(self.position, self.best_weights)

    def _not_finite(self, what: str, rows: Sequence[ShardRows] = ()) -> NestError:
        position = self.position
        where = f"epoch {position.epoch}, step {position.step}" if rows else f"epoch {position.epoch}"
        newest, rate = self._resumption.states.newest, self._recipe.learning_rate
        return not_finite(f"{self._trainee.stage}: the {what}", where, rows, newest, rate)

    def _evaluate(self) -> tuple[dict[str, float], float]:
        self._progress.tell()
        self.module.eval()
        with torch.no_grad():
            return within_memory(lambda: self._trainee.evaluate(self.module), self._trainee, self._runtime)

    def _judge(self, metrics: dict[str, float], objective: float) -> None:
        """Tell what an epoch came to and keep its weights if they are the best so far."""
        position, telemetry = self.position, self._runtime.telemetry
        trained = {f"train_{name}": total / self._steps_per_epoch for name, total in position.sums.items()}
        metrics = trained | metrics
        position.history.append({"epoch": position.epoch, **metrics})
        speed = {name: value for name, value in self._progress.last.items() if name in MEASURED}
        telemetry.evaluation(position.epoch, metrics | speed, step=self._steps_done)
        if not math.isfinite(objective):
            raise self._not_finite("validation")
        position.waited += 1
        if objective < position.best:
            position.best, position.best_epoch, position.waited = objective, position.epoch, 0
            self.best_weights = whole_weights(self._trainee.module)

    @property
    def _steps_done(self) -> int:
        return self.position.epoch * self._steps_per_epoch + self.position.step

    def _steps(self) -> list[np.ndarray]:
        return epoch_steps(
            len(self._trainee.rows),
            self._recipe.examples_per_step,
            seed=self._seed,
            epoch=self.position.epoch,
        )

    def _rows_done(self) -> int:
        done = self._steps()[: self.position.step]
        return int(sum(self._trainee.rows[examples].sum() for examples in done))


def not_finite(
    what: str, where: str, rows: Sequence[ShardRows], last_good: Path | None, learning_rate: float
) -> NestError:
    """Return the error of a loss that is NaN or infinite: the step, its rows, what is left, what to try.

    Args:
        what: the stage and which loss. where: the epoch and step.
        rows: of the step's batch; none for a validation.
    """
    of_rows = f", on {in_words(rows)}" if rows else ""
    kept = f"the last good state is {last_good}" if last_good else "no state was saved yet"
    try_first = "Go on from it with" if last_good else "Train in"
    suspect = ", or look in these rows for values that are no numbers" if rows else ""
    return NestError(
        f"{what} is not finite at {where}{of_rows}; {kept}. {try_first} --precision 32-true, or begin anew "
        f"with a lower --learning-rate (it is {learning_rate:g}){suspect}."
    )
