"""The one training loop, for pretraining and for every task: steps, validation, early stopping, saved states.

All that is random in a step is seeded from (seed, epoch, step), and the learning rate is a function of the
step, so a state is weights, optimiser and a few numbers, and a killed run ends with the very same weights.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from nest_model.batches import epoch_steps
from nest_model.curves import MEASURED, Measured
from nest_model.faults import not_finite
from nest_model.memory import is_out_of_memory, out_of_memory
from nest_model.ranks import anywhere, total
from nest_model.sharding import load_moments, load_weights, whole_moments, whole_weights
from nest_model.state import StateFolder, TrainingState
from nest_model.telemetry import Stopped, StopRequest, Telemetry
from nest_model.whereabouts import ShardRows
from schemas.errors import NestError

log = logging.getLogger("nest")
Result = TypeVar("Result")
SECONDS_BETWEEN_STATES = 30.0


@dataclass(frozen=True)
class Recipe:
    """How a module is optimised (AdamW) and when it is done."""

    learning_rate: float
    epochs: int
    patience: int  # epochs without a better validation before the training ends
    weight_decay: float = 0.01
    warmup_share: float = 0.0  # of all steps, linear
    cosine: bool = False  # after the warm-up, down to 0 at the last epoch; else constant
    examples_per_step: int = 36
    thinning: float = 0.0  # share of the events left out of a training example, drawn anew every time
    row_budget: int = 8_192  # rows of a micro-batch; changes memory and speed, not the result

    def changed(self, **changes: float | None) -> Self:
        """Return the recipe with each of these that is not None in its place."""
        return replace(self, **{name: value for name, value in changes.items() if value is not None})

    def of_the_result(self) -> dict[str, Any]:
        """Return what the result depends on: all but the row budget."""
        return {name: value for name, value in vars(self).items() if name != "row_budget"}

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate of a step (from 0) out of all `steps`."""
        warmup = self.warmup_share * steps
        if step < warmup:
            return self.learning_rate * (step + 1) / (warmup + 1)
        if not self.cosine:
            return self.learning_rate
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


class Parcel:
    """What goes into a module that Fabric wraps, or comes out of it, as it is.

    Fabric casts every float tensor it finds in a call, and positions in days must stay float64.
    """

    __slots__ = ("content",)

    def __init__(self, content: Any) -> None:
        self.content = content


class Trainee(Protocol):
    """What the loop trains."""

    module: nn.Module
    stage: str  # for the progress line
    rows: np.ndarray  # [examples] rows of each training example; their sum is the unit of progress
    padded_rows: int  # of an example whose context is filled up
    row_budget: int  # of a micro-batch from now on; the loop may lower it

    def parts(self, examples: np.ndarray, step_seed: int) -> list[Any]:
        """Return this rank's micro-batches of a step, as many as any rank's."""
        ...

    def losses(self, module: nn.Module, part: Any) -> dict[str, Tensor]:
        """Return a micro-batch's part; `loss` is differentiable, the parts of all ranks add up to means."""
        ...

    def evaluate(self, module: nn.Module) -> tuple[dict[str, float], float]:
        """Return the validation metrics, and the one number that should fall."""
        ...

    def where(self, examples: np.ndarray) -> list[ShardRows]:
        """Return where on disk these examples are read from."""
        ...


@dataclass
class Position:
    """Where a run stands."""

    epoch: int = 0
    step: int = 0  # the next one of this epoch
    best: float = math.inf
    best_epoch: int = -1
    waited: int = 0
    sums: dict[str, float] = field(default_factory=dict)  # of the losses of this epoch's steps
    history: list[dict[str, Any]] = field(default_factory=list)


def fit(
    trainee: Trainee,
    recipe: Recipe,
    *,
    seed: int,
    fabric: Fabric,
    states: StateFolder,
    telemetry: Telemetry,
    stop: StopRequest,
    seconds_between_states: float = SECONDS_BETWEEN_STATES,
    lower_row_budget: bool = False,
) -> tuple[Position, nn.Module]:
    """Train until the validation stops improving; leave the best epoch's weights in `trainee.module`.

    Args:
        lower_row_budget: halve it when memory runs out, and repeat what did not fit; the result is the same.

    Returns:
        Where the run ended, and the module as Fabric wraps it, to be called in the precision it was trained in.

    Raises:
        NestError: the loss is not finite, memory ran out, or a state cannot be written.
        Stopped: `stop` was asked for; the state is saved.
    """
    may_lower = lower_row_budget and fabric.world_size == 1  # ranks would wait for each other
    run = _Run(trainee, recipe, seed, fabric, states, telemetry, stop, seconds_between_states, may_lower)
    run.resume()
    while run.position.epoch < recipe.epochs and run.position.waited < recipe.patience:
        run.epoch()
    load_weights(trainee.module, run.best_weights, fabric)
    return run.position, run.module


class _Run:
    def __init__(
        self,
        trainee: Trainee,
        recipe: Recipe,
        seed: int,
        fabric: Fabric,
        states: StateFolder,
        telemetry: Telemetry,
        stop: StopRequest,
        seconds_between_states: float,
        may_lower_row_budget: bool,
    ) -> None:
        self._trainee, self._recipe, self._seed, self._fabric = trainee, recipe, seed, fabric
        self._states, self._telemetry, self._stop = states, telemetry, stop
        self._seconds_between_states = seconds_between_states
        self.module = fabric.setup_module(trainee.module)  # first: sharded weights are other tensors
        trained = [weight for weight in trainee.module.parameters() if weight.requires_grad]
        self._adamw = torch.optim.AdamW(
            trained, lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True
        )
        self._optimizer = fabric.setup_optimizers(self._adamw)
        self._may_lower_row_budget = may_lower_row_budget
        self._measured = Measured(trainee.padded_rows)
        self.position = Position()
        self.best_weights = whole_weights(trainee.module)  # on the first rank alone
        self._saved_at = time.monotonic()
        self._steps_per_epoch = math.ceil(len(trainee.rows) / recipe.examples_per_step)

    def resume(self) -> None:
        """Go on from the newest saved state, if there is one."""
        state = self._states.load() if self._fabric.is_global_zero else None
        numbers = self._fabric.broadcast(None if state is None else state.numbers)
        if numbers is not None:
            self._restore({} if state is None else state.tensors, numbers)
            log.info("going on from epoch %d, step %d.", self.position.epoch, self.position.step)
        position = self.position
        done = position.epoch * int(self._trainee.rows.sum()) + self._rows_done()
        self._progress = self._telemetry.progress(
            self._trainee.stage,
            total=self._recipe.epochs * int(self._trainee.rows.sum()),
            unit="rows/s",
            done=done,
            measured=self._measured,
        )
        self._telemetry.curves(self._steps_done, {})  # what a run before told of later steps is undone

    def epoch(self) -> None:
        """Run the rest of this epoch, validate, save."""
        position = self.position
        self.module.train()
        for examples in self._steps()[position.step :]:
            self._step(examples)
            position.step += 1
            self._progress.advance(int(self._trainee.rows[examples].sum()), step=self._steps_done)
        self._validate()
        position.epoch, position.step, position.sums = position.epoch + 1, 0, {}
        self._save()

    def _step(self, examples: np.ndarray) -> None:
        position, recipe = self.position, self._recipe
        rate = recipe.rate(self._steps_done, recipe.epochs * self._steps_per_epoch)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        totals = self._in_memory(lambda: self._gradients(examples))
        if not math.isfinite(totals["loss"]):
            raise self._not_finite("loss", self._trainee.where(examples))
        self._keep()
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

    def _in_memory(self, work: Callable[[], Result]) -> Result:
        """Return what `work` does, done again with half the row budget whenever memory runs out and that is allowed."""
        while True:
            try:
                return work()
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
            self._lower_row_budget()  # here, where the error and with it the step's tensors are gone

    def _lower_row_budget(self) -> None:
        trainee, budget = self._trainee, self._trainee.row_budget
        one_patient = budget <= trainee.rows.max()
        if one_patient or not self._may_lower_row_budget:
            alone = self._fabric.world_size == 1
            raise out_of_memory(trainee.stage, budget, one_patient=one_patient, alone=alone)
        trainee.row_budget = budget // 2
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        log.warning(
            "out of memory with %s rows a micro-batch: the step is done again with %s.",
            f"{budget:,}",
            f"{trainee.row_budget:,}",
        )

    def _keep(self) -> None:
        """Save the state if it is time to, or a rank is asked to end: here, where the weights gave a finite loss."""
        position = self.position
        due = time.monotonic() - self._saved_at >= self._seconds_between_states
        now = anywhere(self._fabric, stop=self._stop.asked, save=due and self._fabric.is_global_zero)
        if now["stop"] or now["save"]:
            self._save()
        if now["stop"]:
            self._fabric.barrier()  # a rank that ends would have the others killed while the first still writes
            raise Stopped(
                f"stopped at epoch {position.epoch}, step {position.step} of {self._steps_per_epoch}; the state is "
                f"saved in {self._states.folder}. Run the same command to go on."
            )

    def _not_finite(self, what: str, rows: Sequence[ShardRows] = ()) -> NestError:
        position = self.position
        where = f"epoch {position.epoch}, step {position.step}" if rows else f"epoch {position.epoch}"
        rate = self._recipe.learning_rate
        return not_finite(f"{self._trainee.stage}: the {what}", where, rows, self._states.newest, rate)

    @property
    def _steps_done(self) -> int:
        return self.position.epoch * self._steps_per_epoch + self.position.step

    def _validate(self) -> None:
        position = self.position
        self._progress.tell()
        self.module.eval()
        with torch.no_grad():
            metrics, objective = self._in_memory(lambda: self._trainee.evaluate(self.module))
        trained = {f"train_{name}": total / self._steps_per_epoch for name, total in position.sums.items()}
        metrics = trained | metrics
        position.history.append({"epoch": position.epoch, **metrics})
        speed = {name: value for name, value in self._progress.last.items() if name in MEASURED}
        self._telemetry.evaluation(position.epoch, metrics | speed, step=self._steps_done)
        if not math.isfinite(objective):
            raise self._not_finite("validation")
        position.waited += 1
        if objective < position.best:
            position.best, position.best_epoch, position.waited = objective, position.epoch, 0
            self.best_weights = whole_weights(self._trainee.module)

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

    def _save(self) -> None:
        began = time.monotonic()
        parts = {
            "module": whole_weights(self._trainee.module),
            "best": self.best_weights,
            "optimizer": whole_moments(self._trainee.module, self._adamw),
        }
        if self._fabric.is_global_zero:
            tensors = {
                f"{part}.{name}": value for part, whole in parts.items() for name, value in whole.items()
            }
            numbers = vars(self.position) | {"scaler": self._fabric.strategy.precision.state_dict()}
            self._states.save(TrainingState(tensors, numbers))
        self._saved_at = time.monotonic()
        # a state of a large model takes seconds to write: never more than a twentieth of the time
        self._seconds_between_states = max(self._seconds_between_states, 20 * (self._saved_at - began))

    def _restore(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        module = self._trainee.module
        load_weights(module, _under(tensors, "module."), self._fabric)
        load_moments(module, self._adamw, _under(tensors, "optimizer."), self._fabric)
        self.best_weights = _under(tensors, "best.")
        if numbers["scaler"]:  # fp16: the factor its losses are scaled by
            self._fabric.strategy.precision.load_state_dict(numbers["scaler"])
        self.position = Position(**{name: value for name, value in numbers.items() if name != "scaler"})


def seed_of(*numbers: int) -> int:
    """Return a 63-bit seed from a few whole numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
