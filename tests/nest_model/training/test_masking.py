import dataclasses
import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch, micro_batches
from nest_model.training.masking import MaskedBatch, mask_batch, mask_sets
from tests.support.factories.ragged import MAX_SET_ROWS, VOCAB_SIZE, configs, ragged_batch, subjects

UNK, CLS, MASK = 1, 2, 4
CONFIG = ModelConfig(VOCAB_SIZE, max_set_rows=MAX_SET_ROWS)


def _masked(batch: PackedBatch, config: ModelConfig = CONFIG, seed: int = 0) -> MaskedBatch:
    return mask_batch(batch, torch.Generator().manual_seed(seed), config)


def _large(config: ModelConfig = CONFIG) -> tuple[PackedBatch, MaskedBatch]:
    batch = ragged_batch([[8, 0, 3, 1, 6]] * 4_000)
    return batch, _masked(batch, config)


def _events(batch: PackedBatch, index: int) -> list[int]:
    first, end = batch.set_offsets[[index, index + 1]].tolist()
    return batch.tokens[first + 1 : end].tolist()


@settings(max_examples=60, deadline=None)
@given(subjects, configs, st.integers(0, 1000))
def test_a_set_is_either_one_mask_row_or_all_its_rows_in_their_places(sizes, config, seed):
    batch = ragged_batch(sizes, seed)
    masked = _masked(batch, config, seed)
    shown, changed = masked.batch, set(masked.mlm_rows.tolist())

    for index in range(batch.sets):
        first, end = shown.set_offsets[[index, index + 1]].tolist()
        assert shown.tokens[first] == CLS
        if end - first == 2 and shown.key_bias[first + 1] > 0:
            assert _events(batch, index)
            assert shown.tokens[first + 1] == MASK
            assert shown.hours[first + 1] == 0
            assert shown.key_bias[first + 1] == math.log(config.max_set_rows - 1)
        else:
            source = slice(*batch.set_offsets[[index, index + 1]].tolist())
            assert torch.equal(shown.hours[first:end], batch.hours[source])
            assert shown.key_bias[first:end].count_nonzero() == 0
            for row, token in zip(range(first, end), batch.tokens[source].tolist(), strict=True):
                assert row in changed or shown.tokens[row] == token
    assert torch.equal(shown.days, batch.days)
    assert torch.equal(shown.subject_offsets, batch.subject_offsets)


@settings(max_examples=60, deadline=None)
@given(subjects, configs, st.integers(0, 1000))
def test_the_target_of_a_masked_set_is_its_token_shares_without_unknown_tokens(sizes, config, seed):
    batch = ragged_batch(sizes, seed)
    masked = _masked(batch, config, seed)

    for place, index in enumerate(masked.masked_sets.sets.tolist()):
        counts = Counter(token for token in _events(batch, index) if token != UNK)
        own = masked.masked_sets.set_of_token == place
        assert masked.masked_sets.tokens[own].tolist() == sorted(counts)
        shares = [counts[token] / counts.total() for token in sorted(counts)]
        assert masked.masked_sets.shares[own].tolist() == pytest.approx(shares)
    assert masked.masked_sets.set_of_token.unique().tolist() == list(range(len(masked.masked_sets.sets)))


@settings(max_examples=60, deadline=None)
@given(subjects, configs, st.integers(0, 1000))
def test_no_special_token_is_ever_a_target_or_a_replacement(sizes, config, seed):
    masked = _masked(ragged_batch(sizes, seed), config, seed)

    assert (masked.mlm_targets > MASK).all()
    assert (masked.masked_sets.tokens > MASK).all()
    shown = masked.batch.tokens[masked.mlm_rows]
    assert ((shown > MASK) | (shown == MASK)).all()


def test_a_masked_set_of_unknown_tokens_alone_has_no_target():
    batch = ragged_batch([[3], [2]])
    tokens = torch.where(batch.tokens == CLS, CLS, UNK)
    tokens[-2:] = torch.tensor([7, 7])
    batch = dataclasses.replace(batch, tokens=tokens)

    masked = _masked(batch, dataclasses.replace(CONFIG, set_mask_share=1.0))

    assert masked.batch.tokens.tolist() == [CLS, MASK, CLS, MASK]
    assert masked.masked_sets.sets.tolist() == [1]
    assert masked.masked_sets.set_of_token.tolist() == [0]
    assert masked.masked_sets.tokens.tolist() == [7]
    assert masked.masked_sets.shares.tolist() == [1.0]


def test_an_empty_set_is_never_masked():
    masked = _masked(ragged_batch([[0, 0, 2]]), dataclasses.replace(CONFIG, set_mask_share=1.0))

    assert masked.batch.set_offsets.tolist() == [0, 1, 2, 4]


def test_two_sets_in_five_are_masked_and_one_token_in_five_of_the_others():
    batch, masked = _large()
    full = batch.set_offsets.diff() > 1
    hidden = masked.batch.key_bias > 0
    own_rows = torch.ones_like(hidden)
    own_rows[masked.batch.cls_rows] = False
    guessable = own_rows & ~hidden & (masked.batch.tokens != UNK)

    assert int(hidden.sum()) / int(full.sum()) == pytest.approx(0.40, abs=0.01)
    assert len(masked.mlm_rows) / int(guessable.sum()) == pytest.approx(0.20, abs=0.005)


def test_of_the_masked_tokens_80_percent_are_masked_10_random_10_kept():
    _, masked = _large()
    shown = masked.batch.tokens[masked.mlm_rows]
    replaced = (shown != MASK) & (shown != masked.mlm_targets)
    same_by_chance = 0.1 / (VOCAB_SIZE - 5)

    assert float((shown == MASK).double().mean()) == pytest.approx(0.8, abs=0.01)
    assert float(replaced.double().mean()) == pytest.approx(0.1 - same_by_chance, abs=0.01)
    assert set(shown[replaced].tolist()) == set(range(5, VOCAB_SIZE))


def test_no_token_of_a_masked_set_is_a_target_of_mlm():
    _, masked = _large()

    assert (masked.batch.key_bias[masked.mlm_rows] == 0).all()
    assert masked.batch.tokens[masked.mlm_rows].ne(CLS).all()


def test_an_objective_without_weight_masks_nothing():
    batch = ragged_batch([[5, 5, 5]] * 20)
    mlm_only = _masked(batch, dataclasses.replace(CONFIG, msm_weight=0.0))
    msm_only = _masked(batch, dataclasses.replace(CONFIG, mlm_weight=0.0))

    assert len(mlm_only.masked_sets.sets) == 0
    assert len(mlm_only.batch.tokens) == len(batch.tokens)
    assert len(mlm_only.mlm_rows) > 0
    assert len(msm_only.mlm_rows) == 0
    assert len(msm_only.masked_sets.sets) > 0


def test_for_set_prediction_sets_are_masked_whatever_the_weights_and_tokens_are_not():
    config = dataclasses.replace(CONFIG, msm_weight=0.0)
    masked = mask_sets(ragged_batch([[5, 5, 5]] * 20), torch.Generator().manual_seed(0), config)

    assert len(masked.masked_sets.sets) > 0
    assert len(masked.mlm_rows) == 0


def test_masking_is_drawn_from_its_generator_alone():
    batch = ragged_batch([[5, 0, 8], [3]] * 10)
    state = torch.get_rng_state()

    one, other = _masked(batch, seed=7), _masked(batch, seed=7)

    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(one.batch.tokens, other.batch.tokens)
    assert torch.equal(one.mlm_rows, other.mlm_rows)
    assert not torch.equal(one.batch.tokens, _masked(batch, seed=8).batch.tokens)


def test_masking_leaves_the_batch_it_was_given_alone():
    batch = ragged_batch([[5, 0, 8], [3]] * 10)
    before = batch.slice_subjects(0, batch.subjects)
    copies = {name: value.clone() for name, value in vars(before).items()}

    _masked(batch)

    assert all(torch.equal(value, copies[name]) for name, value in vars(batch).items())


@settings(max_examples=40, deadline=None)
@given(subjects, configs, st.integers(1, 40), st.integers(0, 1000))
def test_micro_batches_are_the_whole_cut_at_subjects_within_the_budget(sizes, config, max_rows, seed):
    masked = _masked(ragged_batch(sizes, seed), config, seed)

    parts = [masked.slice_subjects(run.start, run.stop) for run in micro_batches(masked.batch.rows, max_rows)]

    assert sum(part.batch.subjects for part in parts) == masked.batch.subjects
    assert all(len(part.batch.tokens) <= max_rows or part.batch.subjects == 1 for part in parts)
    for name in ("tokens", "hours", "key_bias", "days"):
        assert torch.equal(
            torch.cat([getattr(part.batch, name) for part in parts]), getattr(masked.batch, name)
        )
    assert torch.equal(torch.cat([part.mlm_targets for part in parts]), masked.mlm_targets)
    for of in ("masked_sets", "visible_sets"):
        for name in ("tokens", "shares"):
            cut = torch.cat([getattr(getattr(part, of), name) for part in parts])
            assert torch.equal(cut, getattr(getattr(masked, of), name))
    shown = torch.cat([part.batch.tokens[part.mlm_rows] for part in parts])
    assert torch.equal(shown, masked.batch.tokens[masked.mlm_rows])
    owners = torch.cat(
        [part.batch.days[part.masked_sets.sets[part.masked_sets.set_of_token]] for part in parts]
    )
    assert torch.equal(owners, masked.batch.days[masked.masked_sets.sets[masked.masked_sets.set_of_token]])
