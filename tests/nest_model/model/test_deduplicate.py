import math

import torch

from nest_model.data.packed import PackedBatch
from nest_model.model.encoder import merge_duplicates


def _batch() -> PackedBatch:
    """Two sets: tokens 7 7 9 7 and 7 9, the first two and the fourth of the first set at hours 1, 2, 1."""
    return PackedBatch.from_events(
        tokens=torch.tensor([7, 7, 9, 7, 7, 9]),
        hours=torch.tensor([1.0, 2.0, 1.0, 1.0, 1.0, 1.0]),
        events_per_set=torch.tensor([4, 2]),
        sets_per_subject=torch.tensor([2]),
        days=torch.zeros(2),
    )


def test_equal_tokens_of_a_set_become_one_row_that_weighs_as_many():
    merged, row_of = merge_duplicates(_batch(), hours_matter=False)

    assert merged.tokens.tolist() == [2, 7, 9, 2, 7, 9]
    assert merged.set_offsets.tolist() == [0, 3, 6]
    assert merged.key_bias.exp().tolist() == [1.0, 3.0000000000000004, 1.0, 1.0, 1.0, 1.0]
    assert row_of.tolist() == [0, 1, 1, 2, 1, 3, 4, 5]


def test_with_times_only_what_happened_at_the_same_time_is_equal():
    merged, row_of = merge_duplicates(_batch(), hours_matter=True)

    assert merged.tokens.tolist() == [2, 7, 7, 9, 2, 7, 9]
    assert merged.hours.tolist() == [0, 1, 2, 1, 0, 1, 1]
    assert row_of.tolist() == [0, 1, 2, 3, 1, 4, 5, 6]


def test_a_row_that_stands_for_many_keeps_its_weight_and_adds_it_up():
    batch = _batch()
    batch.key_bias[1] = math.log(511)

    merged, _ = merge_duplicates(batch, hours_matter=False)

    assert round(float(merged.key_bias[1].exp()), 9) == 513


def test_a_batch_without_equal_rows_is_left_as_it_is():
    batch = _batch().slice_subjects(0, 1)
    once = PackedBatch(**{**vars(batch), "tokens": torch.arange(8)})

    merged, row_of = merge_duplicates(once, hours_matter=False)

    assert merged is once
    assert row_of.tolist() == list(range(8))
