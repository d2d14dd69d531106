"""Where a run stands: saved with the weights and the optimiser's moments, and gone on from."""

import math
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from nest_model.training.fsdp import load_moments, load_weights, whole_moments, whole_weights
from nest_model.training.state import StateFolder, TrainingState
from nest_model.training.task import Trainee


@dataclass
class Position:
    """The next step, the best epoch so far, and what was told of those before."""

    epoch: int = 0
    step: int = 0  # the next one of this epoch
    best: float = math.inf
    best_epoch: int = -1
    waited: int = 0
    sums: dict[str, float] = field(default_factory=dict)  # of the losses of this epoch's steps
    history: list[dict[str, Any]] = field(default_factory=list)


class Resumption:
    """Saves a run's state every so often, and finds the newest again; all ranks call, the first reads and writes."""

    def __init__(
        self,
        trainee: Trainee,
        optimizer: torch.optim.Optimizer,
        fabric: Fabric,
        states: StateFolder,
        *,
        seconds_between_states: float,
    ) -> None:
        self._module, self._optimizer, self._fabric, self.states = trainee.module, optimizer, fabric, states
        self._seconds_between_states = seconds_between_states
        self._saved_at = time.monotonic()

    @property
    def due(self) -> bool:
        return time.monotonic() - self._saved_at >= self._seconds_between_states

    def save(self, position: Position, best_weights: dict[str, Tensor]) -> None:
        """Save all that a run needs to end as if it had not been interrupted."""
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
        # a state of a large model takes seconds to write: never more than a twentieth of the time
        self._seconds_between_states = max(self._seconds_between_states, 20 * (self._saved_at - began))

    def restore(self) -> tuple[Position, dict[str, Tensor]] | None:
        """Put the newest state's weights and moments in place; return its position and the best weights.

        The best weights are on the first rank alone. None: there is no state.
        """
        state = self.states.load() if self._fabric.is_global_zero else None
        numbers = self._fabric.broadcast(None if state is None else state.numbers)
        if numbers is None:
            return None
        tensors = {} if state is None else state.tensors
        load_weights(self._module, _under(tensors, "module."), self._fabric)
        load_moments(self._module, self._optimizer, _under(tensors, "optimizer."), self._fabric)
        scaler = numbers.pop("scaler")
        if scaler:  # fp16: the factor its losses are scaled by
            self._fabric.strategy.precision.load_state_dict(scaler)
        return Position(**numbers), _under(tensors, "best.")


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
