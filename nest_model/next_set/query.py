"""Query sets in the form the model was trained on: a set with only a [CLS] row and one [MASK] row.

The set to predict is appended to the history as a masked set; its tokens are not in the batch, so they cannot leak.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor

from nest_model.data.packed import PackedBatch, offsets
from schemas.tables.vocab import MASK


def with_queries(batch: PackedBatch, max_set_rows: int) -> PackedBatch:
    """Insert a [MASK] row, standing for `max_set_rows` - 1 rows, into each subject's last set, which is empty."""
    lengths = batch.set_offsets.diff()
    last = batch.subject_offsets[1:] - 1
    lengths[last] += 1
    set_offsets = offsets(lengths)
    queries = set_offsets[last] + 1
    is_original = torch.ones(int(set_offsets[-1]), dtype=torch.bool).index_fill(0, queries, False)

    def with_rows(column: Tensor, value: float) -> Tensor:
        return torch.full((len(is_original),), value, dtype=column.dtype).masked_scatter(is_original, column)

    return replace(
        batch,
        tokens=with_rows(batch.tokens, MASK),
        hours=with_rows(batch.hours, 0.0),
        key_bias=with_rows(batch.key_bias, math.log(max_set_rows - 1)),
        set_offsets=set_offsets,
    )
