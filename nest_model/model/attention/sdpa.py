"""Attention that runs on any device: pieces sorted by length into buckets with little padding, a fused call each."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from nest_model.model.gather import spread, take

MAX_WASTE = 0.15  # largest share of empty key slots in a bucket

AttendBucket = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""Attention in a bucket: query, key and value [pieces, heads, slots, d_head], and a mask as in SdpaPlan."""


@dataclass(frozen=True)
class Slots:
    """A padded layout of rows: each bucket has the same number of slots for each of its pieces."""

    slot_of_row: Tensor  # i64 [rows]
    row_of_slot: Tensor  # i64 [slots], any row in an empty slot
    shapes: tuple[tuple[int, int], ...]  # (pieces, slots per piece) of each bucket

    @classmethod
    def lay_out(cls, offsets: Tensor, order: Tensor, shapes: list[tuple[int, int]]) -> Self:
        """Assign slots to the pieces of `offsets`, taken in `order`."""
        lengths = offsets.diff()
        pieces, slots = torch.tensor(shapes, device=offsets.device).unbind(1)
        slots_of_piece = torch.repeat_interleave(slots, pieces)
        first_slots = torch.empty_like(order)
        first_slots[order] = slots_of_piece.cumsum(0) - slots_of_piece
        rows = torch.arange(int(offsets[-1]), device=offsets.device)
        slot_of_row = rows + torch.repeat_interleave(first_slots - offsets[:-1], lengths)
        # padding repeats the first row of the piece, or any row if the piece is empty
        row_of_slot = torch.repeat_interleave(offsets[:-1][order], slots_of_piece).clamp(max=len(rows) - 1)
        row_of_slot[slot_of_row] = rows
        return cls(slot_of_row, row_of_slot, tuple(shapes))

    def fill(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Move rows into their slots: [pieces, heads, slots, d_head] for each bucket."""
        slot_rows = spread(rows, self.row_of_slot, self.slot_of_row)
        parts = slot_rows.split([pieces * slots for pieces, slots in self.shapes])
        return tuple(
            part.unflatten(0, shape).transpose(1, 2) for part, shape in zip(parts, self.shapes, strict=True)
        )

    def empty(self, buckets: list[Tensor]) -> Tensor:
        """Move rows out of their slots: the reverse of `fill`."""
        return take(torch.cat([slots.transpose(1, 2).flatten(0, 1) for slots in buckets]), self.slot_of_row)


@dataclass(frozen=True)
class SdpaPlan:
    """The slots of queries and keys in buckets of pieces with similar numbers of keys."""

    queries: Slots
    keys: Slots
    masks: tuple[Tensor | None, ...]  # [pieces, 1, 1, slots], added to a bucket's scores; None: all 0
    is_causal: bool

    @classmethod
    def build(
        cls,
        offsets: Tensor,
        key_bias: Tensor | None,
        query_offsets: Tensor | None,
        /,
        *,
        is_causal: bool = False,
    ) -> Self:
        """Build the plan; see `plan_attention`."""
        lengths = np.diff(offsets.cpu().numpy())
        longest_first = np.argsort(-lengths, kind="stable")
        buckets = list(pairwise(bucket_cuts(lengths[longest_first])))
        order = torch.from_numpy(longest_first).to(offsets.device)
        keys = Slots.lay_out(offsets, order, _shapes(lengths[longest_first], buckets))
        queries = keys
        if query_offsets is not None:
            query_counts = np.diff(query_offsets.cpu().numpy())[longest_first]
            queries = Slots.lay_out(query_offsets, order, _shapes(query_counts, buckets))
        if is_causal and key_bias is None:  # empty slots come last, so no row's query attends to them
            return cls(queries, keys, (None,) * len(keys.shapes), is_causal)
        return cls(queries, keys, _masks(keys, key_bias), is_causal)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attend within each piece; see AttentionPlan."""
        return self.by_bucket(partial(_attend_bucket, is_causal=self.is_causal), query, key, value)

    def by_bucket(self, attend: AttendBucket, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return what `attend` makes of each bucket of pieces, [queries, heads, d_head]."""
        if not len(query):
            return query
        inputs = (self.queries.fill(query), self.keys.fill(key), self.keys.fill(value))
        return self.queries.empty([attend(*bucket) for bucket in zip(*inputs, self.masks, strict=True)])


def bucket_cuts(falling_lengths: np.ndarray) -> list[int]:
    """Cut lengths, longest first, greedily into buckets that waste at most MAX_WASTE of their slots.

    Returns:
        The start of each bucket, and the end: [buckets + 1].
    """
    ends = np.cumsum(falling_lengths)
    cuts = [0]
    while cuts[-1] < len(falling_lengths):
        first = cuts[-1]
        rows = ends[first:] - (ends[first] - falling_lengths[first])
        slots = falling_lengths[first] * np.arange(1, len(rows) + 1)
        cuts.append(first + int(np.searchsorted(slots * (1 - MAX_WASTE) > rows, True)))
    return cuts


def _shapes(lengths: np.ndarray, buckets: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return (pieces, slots per piece) of each bucket; a bucket without rows still has one slot per piece."""
    return [(end - first, max(int(lengths[first:end].max()), 1)) for first, end in buckets]


def _masks(keys: Slots, key_bias: Tensor | None) -> tuple[Tensor | None, ...]:
    mask = torch.full(keys.row_of_slot.shape, -torch.inf, dtype=torch.float64, device=keys.row_of_slot.device)
    mask[keys.slot_of_row] = 0.0 if key_bias is None else key_bias.double()
    parts = mask.split([pieces * slots for pieces, slots in keys.shapes])
    return tuple(
        part.view(pieces, 1, 1, slots) if part.any() else None
        for part, (pieces, slots) in zip(parts, keys.shapes, strict=True)
    )


def _attend_bucket(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, is_causal: bool
) -> Tensor:
    if mask is None:
        return fused_attention(query, key, value, is_causal=is_causal)
    mask = mask.to(torch.promote_types(query.dtype, torch.float32))
    if is_causal:
        slots = key.shape[-2]
        mask = mask + torch.full((slots, slots), -torch.inf, dtype=mask.dtype, device=mask.device).triu(1)
    return fused_attention(query, key, value, mask)


MAX_KEYS_IN_FLOAT32 = 512
"""Up to this many keys bfloat16 is not faster than float32 on a CPU. Forward and backward on an AMD EPYC (Zen 4)
took 1.5 to 1.8 times as long on 128 keys, 1.1 times on 256, as long on 512, and 0.87 times on 2,048."""


def fused_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *, is_causal: bool = False
) -> Tensor:
    """Return softmax(query · keyᵀ / √d_head + mask) · value, in the inputs' type.

    On a CPU bfloat16 is computed in float32 if there are few keys, because torch's bfloat16 kernel is slow and rounds
    every step. The tensors saved for the backward pass are then float32, twice as large.

    Args:
        query: [..., queries, d_head]. key, value: [..., keys, d_head].
        mask: broadcast to [..., queries, keys]; added to the scores; if bool, true for keys to attend to.
        is_causal: the n-th query attends to the first n keys alone; without a mask.
    """
    has_few_keys = key.shape[-2] <= MAX_KEYS_IN_FLOAT32
    if has_few_keys and query.device.type == "cpu" and query.dtype == torch.bfloat16:
        if mask is not None and mask.dtype != torch.bool:
            mask = mask.float()
        with torch.autocast("cpu", enabled=False):
            outputs = scaled_dot_product_attention(
                query.float(), key.float(), value.float(), attn_mask=mask, is_causal=is_causal
            )
        return outputs.to(query.dtype)
    if mask is not None and mask.dtype != torch.bool and query.device.type == "cuda":
        mask = mask.to(query.dtype)  # CUDA's kernels add masks of the scores' type alone
    return scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=is_causal)
