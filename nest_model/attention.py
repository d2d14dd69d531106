"""Attention inside each piece of packed rows, behind one interface: plan once a batch, attend in every layer.

A back-end is a plan class in BACKENDS. "sdpa" runs anywhere: pieces sorted by length into buckets of little
padding, each bucket one call of torch's scaled_dot_product_attention.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, Self

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
    """Pieces of like length, padded to `longest`: slots `first_slot` … `first_slot + pieces · longest`."""

    first_slot: int
    pieces: int
    longest: int
    mask: Tensor | None  # [pieces, 1, 1, longest], added to the scores; None where it would be 0

    @property
    def slots(self) -> slice:
        return slice(self.first_slot, self.first_slot + self.pieces * self.longest)


@dataclass(frozen=True)
class SdpaPlan:
    """Where every row lies among the slots of its bucket."""

    slot_of_row: Tensor  # i64 [rows]
    slots: int
    buckets: tuple[Bucket, ...]

    @classmethod
    def build(cls, offsets: Tensor, key_bias: Tensor | None) -> Self:
        lengths = np.diff(offsets.cpu().numpy())
        longest_first = np.argsort(-lengths, kind="stable")
        cuts = bucket_cuts(lengths[longest_first])
        first_slots, shapes, slot = np.zeros_like(lengths), [], 0
        for first, end in pairwise(cuts):
            longest = int(lengths[longest_first[first]])
            first_slots[longest_first[first:end]] = slot + longest * np.arange(end - first)
            shapes.append((slot, end - first, longest))
            slot += longest * (end - first)
        starts = torch.from_numpy(first_slots).to(offsets.device)
        row_lengths = offsets.diff()
        slot_of_row = torch.arange(int(offsets[-1]), device=offsets.device)
        slot_of_row += torch.repeat_interleave(starts - offsets[:-1], row_lengths)
        masks = torch.full((slot,), -torch.inf, dtype=torch.float64, device=offsets.device)
        masks[slot_of_row] = 0.0 if key_bias is None else key_bias.double()
        return cls(slot_of_row, slot, tuple(_bucket(masks, *shape) for shape in shapes))

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query, key, value = (self._pad(rows) for rows in (query, key, value))
        attended = [_attend_bucket(query, key, value, bucket) for bucket in self.buckets]
        return torch.cat(attended).index_select(0, self.slot_of_row)

    def _pad(self, rows: Tensor) -> Tensor:
        return rows.new_zeros(self.slots, *rows.shape[1:]).index_copy_(0, self.slot_of_row, rows)


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


def _bucket(masks: Tensor, first_slot: int, pieces: int, longest: int) -> Bucket:
    mask = masks[first_slot : first_slot + pieces * longest].view(pieces, 1, 1, longest)
    return Bucket(first_slot, pieces, longest, mask if mask.any() else None)


def _attend_bucket(query: Tensor, key: Tensor, value: Tensor, bucket: Bucket) -> Tensor:
    shape = (bucket.pieces, bucket.longest)
    query, key, value = (
        slots[bucket.slots].unflatten(0, shape).transpose(1, 2) for slots in (query, key, value)
    )
    mask = None if bucket.mask is None else bucket.mask.to(query.dtype)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask).transpose(1, 2).flatten(0, 1)
