"""The interface between the training loop and the tasks it trains."""

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
from torch import Tensor, nn

from nest_model.data.locations import ShardRows


class TrainingTask(Protocol):
    """A task the loop can train."""

    stage: str  # for the progress line
    system: str  # of the encoder, for errors
    rows: np.ndarray  # i64 [examples], rows of each training example; progress counts them
    padded_rows: int  # rows of an example padded to the full context
    row_budget: int  # of a micro-batch from now on; the loop may lower it

    @property
    def module(self) -> nn.Module:
        """Return the module that is trained."""
        ...

    @property
    def fresh_weights(self) -> Iterable[nn.Parameter]:
        """Return the weights initialised at random when others are pretrained."""
        ...

    def micro_batches(self, examples: np.ndarray, step_seed: int) -> list[Any]:
        """Return this rank's micro-batches of a step; all ranks have the same number."""
        ...

    def losses(self, module: nn.Module, part: Any) -> dict[str, Tensor]:
        """Return a micro-batch's part of the losses; `loss` is differentiable, and parts sum over ranks to means."""
        ...

    def after_step(self) -> None:
        """Follow a step of the optimiser."""
        ...

    def evaluate(self, module: nn.Module) -> tuple[dict[str, float], float]:
        """Return the validation metrics and the objective to minimise."""
        ...

    def locate(self, examples: np.ndarray) -> list[ShardRows]:
        """Return the shard rows of these examples."""
        ...
