"""Attention inside each piece of packed rows, behind one interface: plan once a batch, attend in every layer.

A back-end is a plan class in BACKENDS. "sdpa" runs anywhere: pieces sorted by length into buckets of little
padding, each bucket one call of torch's scaled_dot_product_attention.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

MAX_WASTE = 0.15  # share of a bucket's slots that hold no row


class AttentionPlan(Protocol):
    """All that attention needs to know of a batch, whatever the layer and the weights."""

    @classmethod
    def build(cls, offsets: Tensor, key_bias: Tensor | None) -> Self:
        """offsets: i64 [pieces + 1] in rows; key_bias: [rows], added to every score of that key, or None."""
        ...

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """softmax(query · key / √d_head + key_bias) · value inside each piece; all [rows, heads, d_head]."""
        ...


@dataclass(frozen=True)
class Bucket:
    """Pieces of like length in pieces · longest slots."""

    pieces: int
    longest: int
    mask: Tensor | None  # [pieces, 1, 1, longest], added to the scores; None where it would be 0


@dataclass(frozen=True)
class SdpaPlan:
    """Where every row lies among the slots of its bucket, the buckets laid end to end."""

    slot_of_row: Tensor  # i64 [rows]
    row_of_slot: Tensor  # i64 [slots], in an empty slot the first row of its piece
    empty_slots: Tensor  # i64 [empty slots]
    buckets: tuple[Bucket, ...]

    @classmethod
    def build(cls, offsets: Tensor, key_bias: Tensor | None) -> Self:
        lengths = np.diff(offsets.cpu().numpy())
        longest_first = np.argsort(-lengths, kind="stable")
        cuts = bucket_cuts(lengths[longest_first])
        shapes = [(end - first, int(lengths[longest_first[first]])) for first, end in pairwise(cuts)]
        slots_of_piece = torch.from_numpy(np.repeat([longest for _, longest in shapes], np.diff(cuts)))
        order = torch.from_numpy(longest_first).to(offsets.device)
        return cls(*_lay_out(offsets, key_bias, order, slots_of_piece.to(offsets.device), shapes))

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        sizes = [bucket.pieces * bucket.longest for bucket in self.buckets]
        padded = (_Pad.apply(rows, self).split(sizes) for rows in (query, key, value))
        attended = [_attend_bucket(*rows) for rows in zip(self.buckets, *padded, strict=True)]
        return _Unpad.apply(torch.cat(attended), self)


BACKENDS: dict[str, type[AttentionPlan]] = {"sdpa": SdpaPlan}


def plan_attention(
    offsets: Tensor, key_bias: Tensor | None = None, *, backend: str = "sdpa"
) -> AttentionPlan:
    """Plan attention inside the pieces that `offsets` cut the rows into; see AttentionPlan."""
    return BACKENDS[backend].build(offsets, key_bias)


def bucket_cuts(falling_lengths: np.ndarray) -> list[int]:
    """Cut lengths, longest first, into the fewest greedy buckets that waste at most MAX_WASTE of their slots.

    Returns:
        Where each bucket begins, and the end: [buckets + 1].
    """
    ends = np.cumsum(falling_lengths)
    cuts = [0]
    while cuts[-1] < len(falling_lengths):
        first = cuts[-1]
        rows = ends[first:] - (ends[first] - falling_lengths[first])
        slots = falling_lengths[first] * np.arange(1, len(rows) + 1)
        cuts.append(first + int(np.searchsorted(slots * (1 - MAX_WASTE) > rows, True)))
    return cuts


def _lay_out(
    offsets: Tensor,
    key_bias: Tensor | None,
    order: Tensor,
    slots_of_piece: Tensor,
    shapes: list[tuple[int, int]],
) -> tuple[Tensor, Tensor, Tensor, tuple[Bucket, ...]]:
    lengths = offsets.diff()
    first_slots = torch.empty_like(order)
    first_slots[order] = slots_of_piece.cumsum(0) - slots_of_piece
    rows = torch.arange(int(offsets[-1]), device=offsets.device)
    slot_of_row = rows + torch.repeat_interleave(first_slots - offsets[:-1], lengths)
    row_of_slot = torch.repeat_interleave(offsets[:-1][order], slots_of_piece)
    row_of_slot[slot_of_row] = rows
    mask = torch.full(row_of_slot.shape, -torch.inf, dtype=torch.float64, device=offsets.device)
    mask[slot_of_row] = 0.0 if key_bias is None else key_bias.double()
    pieces = mask.split([count * longest for count, longest in shapes])
    buckets = tuple(
        Bucket(*shape, part.view(shape[0], 1, 1, shape[1]) if part.any() else None)
        for shape, part in zip(shapes, pieces, strict=True)
    )
    return slot_of_row, row_of_slot, (mask == -torch.inf).nonzero().squeeze(1), buckets


def _attend_bucket(bucket: Bucket, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    shape = (bucket.pieces, bucket.longest)
    query, key, value = (slots.unflatten(0, shape).transpose(1, 2) for slots in (query, key, value))
    mask = None if bucket.mask is None else bucket.mask.to(torch.promote_types(query.dtype, torch.float32))
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask).transpose(1, 2).flatten(0, 1)


class _Pad(torch.autograd.Function):
    """Rows to slots. Autograd's own gradient of a gather is a scatter-add, several times slower on a CPU."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, plan: SdpaPlan) -> Tensor:
        ctx.plan = plan
        return rows.index_select(0, plan.row_of_slot)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient.index_select(0, ctx.plan.slot_of_row), None  # none comes back from an empty slot


class _Unpad(torch.autograd.Function):
    """Slots to rows; see _Pad."""

    @staticmethod
    def forward(ctx: Any, slots: Tensor, plan: SdpaPlan) -> Tensor:
        ctx.plan = plan
        return slots.index_select(0, plan.slot_of_row)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        slots = gradient.index_select(0, ctx.plan.row_of_slot)
        return slots.index_fill_(0, ctx.plan.empty_slots, 0.0), None
