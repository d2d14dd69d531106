"""What the training loop asks of what it trains, and how a batch passes through the module Fabric wraps."""

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
from torch import Tensor, nn

from nest_model.data.locations import ShardRows


class Trainee(Protocol):
    """What the loop trains."""

    module: nn.Module
    stage: str  # for the progress line
    rows: np.ndarray  # [examples] rows of each training example; their sum is the unit of progress
    padded_rows: int  # of an example whose context is filled up
    row_budget: int  # of a micro-batch from now on; the loop may lower it

    @property
    def fresh_weights(self) -> Iterable[nn.Parameter]:
        """Return the weights that begin at random beside others that do not."""
        ...

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
