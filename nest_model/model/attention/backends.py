"""The back-ends of attention by name."""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from torch import Tensor

from nest_model.model.attention.kernels import KERNELS
from nest_model.model.attention.packed import PackedPlan
from nest_model.model.attention.sdpa import SdpaPlan


class AttentionPlan(Protocol):
    """All that attention needs to know of a batch, whatever the layer and the weights."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return softmax(query · key / √d_head + key_bias) · value inside each piece.

        query [queries, heads, d_head]; key, value [rows, heads, d_head] → [queries, heads, d_head].
        """
        ...


Build = Callable[[Tensor, Tensor | None, Tensor | None], AttentionPlan]
BACKENDS: dict[str, Build] = {
    "sdpa": SdpaPlan.build,
    **{name: partial(PackedPlan.build, kernel) for name, kernel in KERNELS.items()},
}
