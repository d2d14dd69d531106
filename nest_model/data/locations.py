"""Where sets lie on disk: the rows of their shards, to look a fault up by; no id, no value."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nest_model.data.selection import Selection
from nest_model.data.seqsets import SeqSets

_SHOWN = 6


@dataclass(frozen=True)
class ShardRows:
    """Neighbouring rows of one shard, counted from 0, both inclusive."""

    shard: str
    first_row: int
    last_row: int

    def __str__(self) -> str:
        return f"{self.shard} rows {self.first_row:,}–{self.last_row:,}"


def shard_rows(seqsets: SeqSets, selection: Selection) -> list[ShardRows]:
    """Return the rows the sets of these examples are read from, in the order of the shards."""
    sets = np.unique(selection.sets)
    shard = np.searchsorted(seqsets.shard_offsets, sets, side="right") - 1
    new = np.flatnonzero(np.r_[True, (np.diff(sets) > 1) | (np.diff(shard) > 0)])
    found = []
    for run, at in zip(np.split(sets, new[1:]), shard[new].tolist(), strict=True):
        first, last = run[[0, -1]] - seqsets.shard_offsets[at]
        found.append(ShardRows(seqsets.shard_names[at], int(first), int(last)))
    return found


def in_words(rows: Sequence[ShardRows]) -> str:
    """Return the first few of them, and how many more there are."""
    shown = ", ".join(str(one) for one in rows[:_SHOWN])
    more = len(rows) - _SHOWN
    return shown + (f" and {more:,} more" if more > 0 else "")
