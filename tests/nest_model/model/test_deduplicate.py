import math

import pytest
import torch

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.model.systems.nest import encoder
from nest_model.model.systems.nest.encoder import merge_duplicates
from tests.support.factories.ragged import seeded_model

TOKENS = [2, 7, 7, 9, 7, 2, 7, 9]


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


LARGEST_TOKEN = (1 << 30) - 1  # the largest of which two sets have room in 63 bits beside the hours


@pytest.mark.parametrize(
    ("token", "hours_matter", "is_merged"),
    [(LARGEST_TOKEN, True, True), (LARGEST_TOKEN + 1, True, False), (LARGEST_TOKEN + 1, False, True)],
)
def test_merge_duplicates_merges_nothing_where_numbers_of_rows_would_overflow(token, hours_matter, is_merged):
    batch = _batch()
    batch.tokens[[1, 4, 7]] = token
    batch.hours[:] = torch.finfo(torch.float32).max

    smaller, row_of = merge_duplicates(batch, hours_matter=hours_matter)

    if is_merged:
        assert smaller.tokens.tolist() == [2, token, 7, 9, 2, 7, token]
        assert row_of.tolist() == [0, 1, 2, 3, 1, 4, 5, 6]
    else:
        assert smaller is batch
        assert row_of.tolist() == list(range(8))


@pytest.mark.parametrize("hours_matter", [True, False])
def test_a_batch_too_large_to_merge_has_the_same_outputs_and_gradients(hours_matter, monkeypatch):
    config = ModelConfig(19, d_model=16, heads=2, d_ff=24, set_position="hours" if hours_matter else None)

    def outputs() -> list[torch.Tensor]:
        model = seeded_model(config)
        rows = model(_batch())
        (rows * torch.arange(rows.numel()).view_as(rows).sin()).sum().backward()
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        return [rows.detach(), *gradients]

    merged = outputs()
    monkeypatch.setattr(encoder, "_TIME_BITS", 63)  # so that every batch is too large where hours matter
    assert (
        merge_duplicates(_batch(), hours_matter=hours_matter)[0].tokens.tolist() == TOKENS
    ) is hours_matter

    for actual, expected in zip(outputs(), merged, strict=True):
        near = 1e-12 * max(1.0, float(expected.abs().max()))
        torch.testing.assert_close(actual, expected, rtol=0, atol=near)
