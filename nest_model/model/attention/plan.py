"""The one way into attention."""

import torch
from torch import Tensor

from nest_model.data.packed import offsets as offsets_of
from nest_model.model.attention.backends import BACKENDS, AttentionPlan
from nest_model.model.attention.choice import fastest


def plan_attention(
    offsets: Tensor,
    key_bias: Tensor | None = None,
    *,
    asking: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    backend: str | None = None,
) -> AttentionPlan:
    """Plan attention inside the pieces that `offsets` cut the rows into.

    Args:
        offsets: i64 [pieces + 1] in rows; no piece is empty.
        key_bias: [rows], added to every score of that key, or None.
        asking: bool [rows], the rows that are queries; None: all. Every row is a key.
        dtype: of the queries and keys to come.
        backend: a name of BACKENDS; None: the fastest that the device has for this dtype.
    """
    query_offsets = None if asking is None else offsets_of(asking.long())[offsets]
    return BACKENDS[backend or fastest(offsets.device, dtype)](offsets, key_bias, query_offsets)
