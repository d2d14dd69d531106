"""Locate sets on disk, by shard and row, for error messages that hold no id and no value."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nest_model.data.selection import Selection
from nest_model.data.seqsets import SeqSets

_SHOWN = 6


@dataclass(frozen=True)
class ShardRows:
    """A run of neighbouring rows of one shard; rows count from 0, both ends inclusive."""

    shard: str
    first_row: int
    last_row: int

    def __str__(self) -> str:
        return f"{self.shard} rows {self.first_row:,}–{self.last_row:,}"


def shard_rows(seqsets: SeqSets, selection: Selection) -> list[ShardRows]:
    """Return the shard rows that hold the sets of these examples, in the order of the shards."""
    sets = np.unique(selection.sets)
    shard = np.searchsorted(seqsets.shard_offsets, sets, side="right") - 1
    new = np.flatnonzero(np.r_[True, (np.diff(sets) > 1) | (np.diff(shard) > 0)])
    rows = []
    for run, shard_index in zip(np.split(sets, new[1:]), shard[new].tolist(), strict=True):
        first, last = run[[0, -1]] - seqsets.shard_offsets[shard_index]
        rows.append(ShardRows(seqsets.shard_names[shard_index], int(first), int(last)))
    return rows


def describe_rows(rows: Sequence[ShardRows]) -> str:
    """Return the first few runs of rows as text, with the number of the rest."""
    listing = ", ".join(str(run) for run in rows[:_SHOWN])
    num_omitted = len(rows) - _SHOWN
    return listing + (f" and {num_omitted:,} more" if num_omitted > 0 else "")
