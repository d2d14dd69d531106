"""The query set is a masked set, whatever the basket in its place holds."""

import math
from pathlib import Path

import torch

from nest_model.config import ModelConfig
from nest_model.data.packed import pack
from nest_model.data.selection import Selection, whole_subjects
from nest_model.data.seqsets import SeqSets
from nest_model.next_set.query import with_queries
from nest_model.training.masking import mask_sets
from schemas.tables.vocab import CLS, MASK
from tests.support.factories.baskets import HIDDEN, VOCAB_SIZE, read_baskets
from tests.support.factories.ragged import seeded_model

CONFIG = ModelConfig(
    vocab_size=VOCAB_SIZE, d_model=8, heads=2, d_ff=12, layers=2, max_set_rows=9, set_position=None
)


def queries(seqsets: SeqSets):
    """Ask after the last set of each user, whose products are left out."""
    offsets = seqsets.subject_offsets
    selection = Selection.of_sets(seqsets, offsets[:-1], offsets[1:] - 1)
    selection.event_counts[selection.set_offsets[1:] - 1] = 0
    return with_queries(pack(seqsets, selection, CONFIG), CONFIG.max_set_rows)


def test_a_query_set_is_a_cls_and_one_weighted_mask(tmp_path: Path):
    batch = queries(read_baskets(tmp_path, {1: [[5, 6], HIDDEN], 2: [[7], HIDDEN]}))
    assert batch.tokens.tolist() == [CLS, 5, 6, CLS, MASK, CLS, 7, CLS, MASK]
    assert batch.set_offsets.tolist() == [0, 3, 5, 7, 9]
    assert batch.key_bias[4] == batch.key_bias[8] == math.log(8)
    assert int(batch.key_bias.count_nonzero()) == 2


def test_query_equals_a_masked_last_set_for_the_model(tmp_path: Path):
    seqsets = read_baskets(tmp_path, {1: [[5, 6], [7], [5, 8, 9]], 2: [[10, 11], [12]]})
    model = seeded_model(CONFIG)
    batch = queries(seqsets)
    query_rows = batch.cls_rows[batch.subject_offsets[1:] - 1]

    whole = pack(seqsets, whole_subjects(seqsets, torch.arange(2).numpy()), CONFIG)
    for seed in range(1000):  # until only the last sets are masked
        masked_sets = mask_sets(whole, torch.Generator().manual_seed(seed), CONFIG)
        if masked_sets.masked_sets.sets.tolist() == (whole.subject_offsets[1:] - 1).tolist():
            break
    expected, rows = model(masked_sets.batch), masked_sets.batch.cls_rows[masked_sets.masked_sets.sets]

    output = model(batch)
    torch.testing.assert_close(output[query_rows], expected[rows], rtol=0, atol=0)
    torch.testing.assert_close(output[query_rows + 1], expected[rows + 1], rtol=0, atol=0)


def test_query_does_not_depend_on_the_target_basket(tmp_path: Path):
    first = read_baskets(tmp_path / "a", {1: [[5, 6], [7], [5, 8, 9]]})
    other = read_baskets(tmp_path / "b", {1: [[5, 6], [7], [12]]})
    batches = queries(first), queries(other)
    for name in vars(batches[0]):
        assert torch.equal(*(getattr(batch, name) for batch in batches)), name
