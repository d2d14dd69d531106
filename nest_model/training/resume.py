"""Save the position of a run with its weights and optimiser moments, and resume from it."""

import math
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from nest_model.training.fsdp import load_moments, load_weights, whole_moments, whole_weights
from nest_model.training.state import StateFolder, TrainingState
from nest_model.training.task import TrainingTask


@dataclass
class Position:
    """The next step, the best epoch so far, and the metrics of the epochs before."""

    epoch: int = 0
    step: int = 0  # the next step of this epoch
    best: float = math.inf
    best_epoch: int = -1
    waited: int = 0  # epochs since the best one
    # of the losses in this epoch so far, each step's times its examples
    sums: dict[str, float] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)


class StateSaver:
    """Saves a run's state regularly and restores the newest; all ranks must call, the first reads and writes."""

    def __init__(
        self,
        task: TrainingTask,
        optimizer: torch.optim.Optimizer,
        fabric: Fabric,
        states: StateFolder,
        *,
        seconds_between_states: float,
    ) -> None:
        self._module, self._optimizer, self._fabric, self.states = task.module, optimizer, fabric, states
        self._seconds_between_states = seconds_between_states
        self._saved_at = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether it is time to save a state."""
        return time.monotonic() - self._saved_at >= self._seconds_between_states

    def save(self, position: Position, best_weights: dict[str, Tensor]) -> None:
        """Save everything a run needs to end as if it had not been interrupted."""
        began = time.monotonic()
        parts = {
            "module": whole_weights(self._module),
            "best": best_weights,
            "optimizer": whole_moments(self._module, self._optimizer),
        }
        if self._fabric.is_global_zero:
            tensors = {
                f"{part}.{name}": value for part, whole in parts.items() for name, value in whole.items()
            }
            numbers = vars(position) | {"scaler": self._fabric.strategy.precision.state_dict()}
            self.states.save(TrainingState(tensors, numbers))
        self._saved_at = time.monotonic()
        # a large model's state takes seconds to write: spend at most a twentieth of the time on it
        self._seconds_between_states = max(self._seconds_between_states, 20 * (self._saved_at - began))

    def restore(self) -> tuple[Position, dict[str, Tensor]] | None:
        """Load the newest state's weights and moments; return its position and best weights, or None without a state.

        The best weights are on the first rank alone.
        """
        state = self.states.load() if self._fabric.is_global_zero else None
        numbers = self._fabric.broadcast(None if state is None else state.numbers)
        if numbers is None:
            return None
        tensors = {} if state is None else state.tensors
        load_weights(self._module, _under(tensors, "module."), self._fabric)
        load_moments(self._module, self._optimizer, _under(tensors, "optimizer."), self._fabric)
        scaler = numbers.pop("scaler")
        if scaler:  # the loss scale of fp16
            self._fabric.strategy.precision.load_state_dict(scaler)
        return Position(**numbers), _under(tensors, "best.")


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
