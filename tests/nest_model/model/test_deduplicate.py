import math

import torch

from nest_model.data.packed import PackedBatch
from nest_model.model.systems.nest.encoder import merge_duplicates


def _batch() -> PackedBatch:
    """Return two sets, tokens 7 7 9 7 and 7 9; in the first set the 7s are at hours 1, 2 and 1."""
    return PackedBatch.from_events(
        tokens=torch.tensor([7, 7, 9, 7, 7, 9]),
        hours=torch.tensor([1.0, 2.0, 1.0, 1.0, 1.0, 1.0]),
        events_per_set=torch.tensor([4, 2]),
        sets_per_subject=torch.tensor([2]),
        days=torch.zeros(2),
    )


def test_merge_duplicates_merges_equal_tokens_of_a_set():
    smaller, row_of = merge_duplicates(_batch(), hours_matter=False)

    assert smaller.tokens.tolist() == [2, 7, 9, 2, 7, 9]
    assert smaller.set_offsets.tolist() == [0, 3, 6]
    assert smaller.key_bias.exp().tolist() == [1.0, 3.0000000000000004, 1.0, 1.0, 1.0, 1.0]
    assert row_of.tolist() == [0, 1, 1, 2, 1, 3, 4, 5]


def test_merge_duplicates_keeps_different_hours_apart():
    smaller, row_of = merge_duplicates(_batch(), hours_matter=True)

    assert smaller.tokens.tolist() == [2, 7, 7, 9, 2, 7, 9]
    assert smaller.hours.tolist() == [0, 1, 2, 1, 0, 1, 1]
    assert row_of.tolist() == [0, 1, 2, 3, 1, 4, 5, 6]


def test_merge_duplicates_sums_the_weights_of_rows():
    batch = _batch()
    batch.key_bias[1] = math.log(511)

    smaller, _ = merge_duplicates(batch, hours_matter=False)

    assert round(float(smaller.key_bias[1].exp()), 9) == 513


def test_merge_duplicates_returns_a_batch_of_distinct_rows_unchanged():
    batch = _batch().slice_subjects(0, 1)
    distinct_batch = PackedBatch(**{**vars(batch), "tokens": torch.arange(8)})

    result, row_of = merge_duplicates(distinct_batch, hours_matter=False)

    assert result is distinct_batch
    assert row_of.tolist() == list(range(8))
