"""What flat encoders share: rows of their own among a batch's rows, and a pass whose last block computes little."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import Tensor

from nest_model.data.packed import PackedBatch
from nest_model.model.attention import AttentionPlan, plan_attention
from nest_model.model.encoder import ReadRows
from nest_model.model.layers import compute_dtype


class FlatBlock(Protocol):
    """A block without positions, or one that already has them."""

    def __call__(self, rows: Tensor, plan: AttentionPlan, *, query_rows: Tensor | None = None) -> Tensor:
        """Return the output at the query rows; see EncoderBlock."""
        ...


@dataclass(frozen=True)
class FlatRows:
    """Where a batch's rows are once a system has rows of its own before and after those of each set."""

    place: Tensor  # i64 [rows of the batch], the flat row of each
    set_offsets: Tensor  # i64 [sets + 1], in flat rows; a set begins and ends with the system's own
    offsets: Tensor  # i64 [subjects + 1], in flat rows

    @classmethod
    def of(cls, batch: PackedBatch, *, before: int = 0, after: int = 0) -> Self:
        """Insert as many rows before and after the rows of each set."""
        added = (before + after) * torch.arange(batch.sets + 1, device=batch.set_offsets.device)
        set_offsets = batch.set_offsets + added
        place = torch.arange(len(batch.tokens), device=added.device) + before + added[batch.set_of_row]
        return cls(place, set_offsets, set_offsets[batch.subject_offsets])

    @property
    def set_of_row(self) -> Tensor:
        """The set of each flat row, i64 [flat rows]."""
        return torch.repeat_interleave(self.set_offsets.diff())


def numbers_within(offsets: Tensor) -> Tensor:
    """Number what `offsets` cut into pieces, from 0 in each piece: i64 [pieces + 1] → i64 [offsets[-1]]."""
    first = offsets[:-1].repeat_interleave(offsets.diff())
    return torch.arange(len(first), device=offsets.device) - first


def run_blocks(blocks: Sequence[FlatBlock], hidden_states: Tensor, offsets: Tensor, rows: Tensor) -> ReadRows:
    """Run blocks in which all rows of a patient attend to each other; the last one computes the read rows alone.

    Args:
        hidden_states: [flat rows, d_model].
        offsets: i64 [subjects + 1], in flat rows.
        rows: i64 [any], the flat rows to read.
    """
    is_read = torch.zeros(len(hidden_states), dtype=torch.bool, device=rows.device).index_fill_(0, rows, True)
    dtype = compute_dtype(hidden_states)
    plan = plan_attention(offsets, dtype=dtype)
    for block in blocks[:-1]:
        hidden_states = block(hidden_states, plan)
    last_plan = plan_attention(offsets, is_query=is_read, dtype=dtype)
    hidden_states = blocks[-1](hidden_states, last_plan, query_rows=is_read.nonzero().squeeze(1))
    return ReadRows(hidden_states, (is_read.cumsum(0) - 1).index_select(0, rows))
