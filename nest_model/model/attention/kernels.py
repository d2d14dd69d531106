"""CUDA kernels that take packed rows and offsets as they are, in 16 bits; none takes a bias of a key.

Neither is imported before it is asked for: a machine without CUDA hears nothing of xFormers.
"""

import logging
from typing import Any, Protocol

from torch import Tensor


class Kernel(Protocol):
    """Attention within pieces, made ready once for a batch."""

    def __init__(self, query_offsets: Tensor, key_offsets: Tensor) -> None:
        """Take i32 [pieces + 1] each; no piece lacks queries or keys."""

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Return softmax(scale · query · key) · value, [queries, heads, d_head]."""
        ...


class Varlen:
    """Torch's own flash attention over pieces."""

    def __init__(self, query_offsets: Tensor, key_offsets: Tensor) -> None:
        self._offsets = query_offsets, key_offsets
        self._longest = _longest(query_offsets), _longest(key_offsets)

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        from torch.nn.attention.varlen import varlen_attn

        return varlen_attn(query, key, value, *self._offsets, *self._longest, scale=scale)


class Xformers:
    """xFormers' memory-efficient attention under a block-diagonal mask."""

    def __init__(self, query_offsets: Tensor, key_offsets: Tensor) -> None:
        self._operators = _xformers()
        lengths = (offsets.diff().tolist() for offsets in (query_offsets, key_offsets))
        self._mask = self._operators.fmha.BlockDiagonalMask.from_seqlens(*lengths)

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        one_batch = (rows[None] for rows in (query, key, value))
        return self._operators.memory_efficient_attention(*one_batch, attn_bias=self._mask, scale=scale)[0]


KERNELS: dict[str, type[Kernel]] = {"varlen": Varlen, "xformers": Xformers}


def _xformers() -> Any:
    logging.getLogger("xformers").setLevel(logging.ERROR)  # it would warn of every part it cannot load
    import xformers.ops

    return xformers.ops


def _longest(offsets: Tensor) -> int:
    return int(offsets.diff().max())
