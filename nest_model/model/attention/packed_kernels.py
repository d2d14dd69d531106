"""Attention by CUDA kernels that take packed rows and offsets directly, in 16 bits.

The kernels have no key bias: it is passed as extra columns of queries and keys. They are imported lazily, so that a
machine without CUDA never loads xFormers.
"""

import logging
from dataclasses import dataclass
from typing import Any, Protocol, Self, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from nest_model.data.packed import offsets as offsets_of
from nest_model.model.gather import take

_COLUMNS = 8  # the kernels need a head width that is a multiple of 8
_PARTS = 3  # terms that add up to a bias: three times bfloat16's 8 bits are float32's 24


class Kernel(Protocol):
    """Attention within pieces, prepared once per batch."""

    def __init__(self, query_offsets: Tensor, key_offsets: Tensor, *, is_causal: bool) -> None:
        """Take offsets i32 [pieces + 1] each; every piece has queries and keys, and if causal as many of both."""

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Return softmax(scale · query · key) · value, [queries, heads, d_head]."""
        ...


@dataclass(frozen=True)
class PackedPlan:
    """The pieces that have queries, ready for a kernel."""

    kernel: Kernel | None  # None: there are no queries
    keys: Tensor | None  # i64 [keys], the rows of these pieces; None: all rows
    key_bias: Tensor | None  # f64 [keys]; None: all 0

    @classmethod
    def build(
        cls,
        kernel: type[Kernel],
        offsets: Tensor,
        key_bias: Tensor | None,
        query_offsets: Tensor | None,
        /,
        *,
        is_causal: bool = False,
    ) -> Self:
        """Build the plan; see `plan_attention`."""
        query_offsets = offsets if query_offsets is None else query_offsets
        has_query, keys = query_offsets.diff() > 0, None
        if not has_query.all():
            keys = torch.repeat_interleave(has_query, offsets.diff()).nonzero().squeeze(1)
            offsets, query_offsets = (offsets_of(ends.diff()[has_query]) for ends in (offsets, query_offsets))
            key_bias = None if key_bias is None else key_bias[keys]
        if not len(keys if keys is not None else has_query):
            return cls(None, keys, None)
        if key_bias is not None and not key_bias.any():
            key_bias = None
        return cls(kernel(query_offsets.int(), offsets.int(), is_causal=is_causal), keys, key_bias)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attend within each piece; see AttentionPlan."""
        if self.kernel is None:
            return query
        if self.keys is not None:
            key, value = take(key, self.keys), take(value, self.keys)
        width = query.shape[-1]
        scale = width**-0.5
        if missing := -width % _COLUMNS:
            query, key, value = (F.pad(part, (0, missing)) for part in (query, key, value))
        if self.key_bias is not None:
            query, key = _with_bias(query, key, self.key_bias / scale)
            value = F.pad(value, (0, _COLUMNS))  # the kernels need values as wide as keys
        return self.kernel(query, key, value, scale)[..., :width]


def _with_bias(query: Tensor, key: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Append columns to queries and keys whose product is the key's bias."""
    columns = key.new_zeros(len(key), 1, _COLUMNS)
    for part in range(_PARTS):
        columns[:, 0, part] = bias.to(key.dtype)
        bias = bias - columns[:, 0, part].double()
    ones = F.pad(query.new_ones(1, 1, _PARTS), (0, _COLUMNS - _PARTS))
    return _append(query, ones), _append(key, columns)


def _append(rows: Tensor, columns: Tensor) -> Tensor:
    return torch.cat([rows, columns.expand(*rows.shape[:2], -1)], dim=-1)


class Varlen:
    """Torch's variable-length flash attention."""

    def __init__(self, query_offsets: Tensor, key_offsets: Tensor, *, is_causal: bool) -> None:
        self._window = (-1, 0) if is_causal else (-1, -1)  # keys before and after a query's own row; -1: all
        self._offsets = query_offsets, key_offsets
        self._longest = _longest(query_offsets), _longest(key_offsets)

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        from torch.nn.attention.varlen import varlen_attn

        outputs = varlen_attn(
            query, key, value, *self._offsets, *self._longest, scale=scale, window_size=self._window
        )
        return cast("Tensor", outputs)  # a tuple only if auxiliary outputs are requested


class Xformers:
    """xFormers' memory-efficient attention under a block-diagonal mask."""

    def __init__(self, query_offsets: Tensor, key_offsets: Tensor, *, is_causal: bool) -> None:
        self._operators = _xformers()
        lengths = (offsets.diff().tolist() for offsets in (query_offsets, key_offsets))
        masks = self._operators.fmha.attn_bias
        kind = masks.BlockDiagonalCausalMask if is_causal else masks.BlockDiagonalMask
        self._mask = kind.from_seqlens(*lengths)

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        one_batch = (rows[None] for rows in (query, key, value))
        outputs: Tensor = self._operators.memory_efficient_attention(
            *one_batch, attn_bias=self._mask, scale=scale
        )
        return outputs[0]


KERNELS: dict[str, type[Kernel]] = {"varlen": Varlen, "xformers": Xformers}


def _xformers() -> Any:
    logging.getLogger("xformers").setLevel(logging.ERROR)  # it warns about every part it cannot load
    import xformers.ops

    return xformers.ops


def _longest(offsets: Tensor) -> int:
    return int(offsets.diff().max())
