"""Attention by kernels that know no bias of a key: it travels as further columns of the queries and the keys."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

from nest_model.data.packed import offsets as offsets_of
from nest_model.model.attention.kernels import Kernel
from nest_model.model.gather import take

_COLUMNS = 8  # the kernels want a head's width to stay a multiple of it
_PARTS = 3  # of a bias, each what the ones before leave: three times bfloat16's 8 bits are float32's 24


@dataclass(frozen=True)
class PackedPlan:
    """The pieces of which a row asks, ready for a kernel."""

    kernel: Kernel | None  # None: no row asks
    keys: Tensor | None  # i64 [keys], the rows of these pieces; None: all
    key_bias: Tensor | None  # f64 [keys]; None: all 0

    @classmethod
    def build(
        cls, kernel: type[Kernel], offsets: Tensor, key_bias: Tensor | None, query_offsets: Tensor | None
    ) -> Self:
        """See `plan_attention`."""
        query_offsets = offsets if query_offsets is None else query_offsets
        asked, keys = query_offsets.diff() > 0, None
        if not asked.all():
            keys = torch.repeat_interleave(asked, offsets.diff()).nonzero().squeeze(1)
            offsets, query_offsets = (offsets_of(ends.diff()[asked]) for ends in (offsets, query_offsets))
            key_bias = None if key_bias is None else key_bias[keys]
        if not len(keys if keys is not None else asked):
            return cls(None, keys, None)
        if key_bias is not None and not key_bias.any():
            key_bias = None
        return cls(kernel(query_offsets.int(), offsets.int()), keys, key_bias)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See AttentionPlan."""
        if self.kernel is None:
            return query
        if self.keys is not None:
            key, value = take(key, self.keys), take(value, self.keys)
        width = query.shape[-1]
        scale = width**-0.5
        if self.key_bias is not None:
            query, key = _with_bias(query, key, self.key_bias / scale)
            value = F.pad(value, (0, _COLUMNS))  # the kernels want values as wide as keys
        return self.kernel(query, key, value, scale)[..., :width]


def _with_bias(query: Tensor, key: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Return queries and keys with columns more, whose product is the bias of the key."""
    columns = key.new_zeros(len(key), 1, _COLUMNS)
    for part in range(_PARTS):
        columns[:, 0, part] = bias.to(key.dtype)
        bias = bias - columns[:, 0, part].double()
    ones = F.pad(query.new_ones(1, 1, _PARTS), (0, _COLUMNS - _PARTS))
    return _append(query, ones), _append(key, columns)


def _append(rows: Tensor, columns: Tensor) -> Tensor:
    return torch.cat([rows, columns.expand(*rows.shape[:2], -1)], dim=-1)
