"""Rows at one time: their stored order is that of their codes, which would reveal a masked token."""

import torch
from torch import Generator

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.training.masking import MaskedBatch
from nest_model.training.objectives.mlm import MaskedTokens
from schemas.tables.vocab import CLS, MASK


def batch_of(tokens: list[int], hours: list[float], sizes: list[int]) -> PackedBatch:
    """Pack one patient."""
    return PackedBatch.from_events(
        torch.tensor(tokens),
        torch.tensor(hours, dtype=torch.float32),
        torch.tensor(sizes),
        torch.tensor([len(sizes)]),
        torch.arange(len(sizes)).double(),
    )


def test_shuffle_moves_rows_within_one_time_of_one_set_alone():
    batch = batch_of([10, 11, 12, 13, 14, 20, 21], [0, 0, 0, 5, 6, 0, 0], [5, 2])
    orders = {
        tuple(batch.without_order_at_one_time(Generator().manual_seed(i)).tokens.tolist()) for i in range(200)
    }
    assert len(orders) == 6 * 2
    for order in orders:
        assert order[0] == order[6] == CLS
        assert sorted(order[1:4]) == [10, 11, 12]
        assert order[4:6] == (13, 14)
        assert sorted(order[7:]) == [20, 21]


def test_shuffle_gives_every_row_every_place_alike():
    batch = batch_of(list(range(10, 16)), [0.0] * 6, [6])
    generator = Generator().manual_seed(0)
    orders = torch.stack([batch.without_order_at_one_time(generator).tokens[1:] for _ in range(6_000)])
    counts = torch.stack([(orders == token).sum(0) for token in range(10, 16)])
    assert (counts - 1_000).abs().max() < 150  # five standard deviations


def test_masked_token_cannot_be_read_off_its_neighbours():
    """Of a stored set, rising by code, the row between two others has a code between theirs."""
    objective = MaskedTokens(ModelConfig.preset("tiny", 200, system="bert"))
    batch = batch_of(list(range(10, 190)), [0.0] * 180, [180])
    masked_batch = objective.corrupt(batch, Generator().manual_seed(0))
    assert isinstance(masked_batch, MaskedBatch)
    between, pairs = 0, 0
    tokens = masked_batch.batch.tokens.tolist()
    for row, target in zip(masked_batch.mlm_rows.tolist(), masked_batch.mlm_targets.tolist(), strict=True):
        if (
            tokens[row] == MASK
            and 1 < row < len(tokens) - 1
            and MASK not in (tokens[row - 1], tokens[row + 1])
        ):
            low, high = sorted((tokens[row - 1], tokens[row + 1]))
            pairs += 1
            between += low < target < high
    assert pairs > 10
    assert between / pairs < 0.7  # a third by chance, all of them in the stored order
