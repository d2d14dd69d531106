"""Rows of a set that are the same, as one row that weighs as many; the same numbers.

Equal rows of a set stay equal in every layer: same input, same keys. As keys, c of them are one with log(c) added to
its scores.
"""

from dataclasses import replace

import torch
from torch import Tensor

from nest_model.data.packed import PackedBatch

_TIME_BITS = 32


def merge_duplicates(batch: PackedBatch, *, timed: bool) -> tuple[PackedBatch, Tensor]:
    """Return the batch with one row for each distinct token of a set, and for every row given the one it is now.

    The first of equal rows stays, in its place.

    Args:
        timed: the model tells rows of a set apart by their hours, too.
    """
    kinds = batch.set_of_row * (int(batch.tokens.max()) + 1) + batch.tokens
    if timed:
        if int(kinds.max()) >= 1 << (63 - _TIME_BITS):  # more sets than a batch ever has
            return batch, torch.arange(len(kinds), device=kinds.device)
        kinds = (kinds << _TIME_BITS) + batch.hours.view(torch.int32)
    _, kind_of_row, counts = torch.unique(kinds, return_inverse=True, return_counts=True)
    rows = torch.arange(len(kinds), device=kinds.device)
    if len(counts) == len(rows):
        return batch, rows
    first = torch.full_like(counts, len(rows)).scatter_reduce_(0, kind_of_row, rows, "amin")
    kept = torch.zeros_like(rows, dtype=torch.bool).index_fill_(0, first, True)
    place = kept.cumsum(0) - 1
    weights = torch.zeros_like(counts, dtype=torch.float64)
    weights.index_add_(0, kind_of_row, batch.key_bias.exp())
    ends = torch.cat([place.new_zeros(1), kept.cumsum(0)])
    merged = replace(
        batch,
        tokens=batch.tokens[kept],
        hours=batch.hours[kept],
        key_bias=weights[kind_of_row[kept]].log(),
        set_offsets=ends[batch.set_offsets],
    )
    return merged, place[first][kind_of_row]
