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
from tests.support.examples import examples
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


@settings(max_examples=examples(60), deadline=None)
@given(subjects, configs, st.integers(0, 1000))
def test_a_masked_set_is_a_single_mask_row_and_others_keep_their_rows(sizes, config, seed):
    batch = ragged_batch(sizes, seed)
    masked_batch = _masked(batch, config, seed)
    visible, mlm_rows = masked_batch.batch, set(masked_batch.mlm_rows.tolist())

    for index in range(batch.sets):
        first, end = visible.set_offsets[[index, index + 1]].tolist()
        assert visible.tokens[first] == CLS
        if end - first == 2 and visible.key_bias[first + 1] > 0:
            assert _events(batch, index)
            assert visible.tokens[first + 1] == MASK
            assert visible.hours[first + 1] == 0
            assert visible.key_bias[first + 1] == math.log(config.max_set_rows - 1)
        else:
            source = slice(*batch.set_offsets[[index, index + 1]].tolist())
            assert torch.equal(visible.hours[first:end], batch.hours[source])
            assert visible.key_bias[first:end].count_nonzero() == 0
            for row, token in zip(range(first, end), batch.tokens[source].tolist(), strict=True):
                assert row in mlm_rows or visible.tokens[row] == token
    assert torch.equal(visible.days, batch.days)
    assert torch.equal(visible.subject_offsets, batch.subject_offsets)


@settings(max_examples=examples(60), deadline=None)
@given(subjects, configs, st.integers(0, 1000))
def test_set_targets_are_token_shares_without_unknown_tokens(sizes, config, seed):
    batch = ragged_batch(sizes, seed)
    masked_batch = _masked(batch, config, seed)

    for place, index in enumerate(masked_batch.masked_sets.sets.tolist()):
        counts = Counter(token for token in _events(batch, index) if token != UNK)
        is_of_set = masked_batch.masked_sets.set_of_token == place
        assert masked_batch.masked_sets.tokens[is_of_set].tolist() == sorted(counts)
        shares = [counts[token] / counts.total() for token in sorted(counts)]
        assert masked_batch.masked_sets.shares[is_of_set].tolist() == pytest.approx(shares)
    assert masked_batch.masked_sets.set_of_token.unique().tolist() == list(
        range(len(masked_batch.masked_sets.sets))
    )


@settings(max_examples=examples(60), deadline=None)
@given(subjects, configs, st.integers(0, 1000))
def test_special_tokens_are_neither_targets_nor_replacements(sizes, config, seed):
    masked_batch = _masked(ragged_batch(sizes, seed), config, seed)

    assert (masked_batch.mlm_targets > MASK).all()
    assert (masked_batch.masked_sets.tokens > MASK).all()
    tokens = masked_batch.batch.tokens[masked_batch.mlm_rows]
    assert ((tokens > MASK) | (tokens == MASK)).all()


def test_a_masked_set_of_unknown_tokens_alone_has_no_target():
    batch = ragged_batch([[3], [2]])
    tokens = torch.where(batch.tokens == CLS, CLS, UNK)
    tokens[-2:] = torch.tensor([7, 7])
    batch = dataclasses.replace(batch, tokens=tokens)

    masked_batch = _masked(batch, dataclasses.replace(CONFIG, set_mask_share=1.0))

    assert masked_batch.batch.tokens.tolist() == [CLS, MASK, CLS, MASK]
    assert masked_batch.masked_sets.sets.tolist() == [1]
    assert masked_batch.masked_sets.set_of_token.tolist() == [0]
    assert masked_batch.masked_sets.tokens.tolist() == [7]
    assert masked_batch.masked_sets.shares.tolist() == [1.0]


def test_an_empty_set_is_never_masked():
    masked_batch = _masked(ragged_batch([[0, 0, 2]]), dataclasses.replace(CONFIG, set_mask_share=1.0))

    assert masked_batch.batch.set_offsets.tolist() == [0, 1, 2, 4]


def test_two_sets_in_five_are_masked_and_one_token_in_five_of_the_others():
    batch, masked_batch = _large()
    full = batch.set_offsets.diff() > 1
    is_mask = masked_batch.batch.key_bias > 0
    own_rows = torch.ones_like(is_mask)
    own_rows[masked_batch.batch.cls_rows] = False
    guessable = own_rows & ~is_mask & (masked_batch.batch.tokens != UNK)

    assert int(is_mask.sum()) / int(full.sum()) == pytest.approx(0.40, abs=0.01)
    assert len(masked_batch.mlm_rows) / int(guessable.sum()) == pytest.approx(0.20, abs=0.005)


def test_target_tokens_are_80_percent_mask_10_random_10_unchanged():
    _, masked_batch = _large()
    tokens = masked_batch.batch.tokens[masked_batch.mlm_rows]
    is_random = (tokens != MASK) & (tokens != masked_batch.mlm_targets)
    same_by_chance = 0.1 / (VOCAB_SIZE - 5)

    assert float((tokens == MASK).double().mean()) == pytest.approx(0.8, abs=0.01)
    assert float(is_random.double().mean()) == pytest.approx(0.1 - same_by_chance, abs=0.01)
    assert set(tokens[is_random].tolist()) == set(range(5, VOCAB_SIZE))


def test_mlm_targets_are_outside_masked_sets():
    _, masked_batch = _large()

    assert (masked_batch.batch.key_bias[masked_batch.mlm_rows] == 0).all()
    assert masked_batch.batch.tokens[masked_batch.mlm_rows].ne(CLS).all()


def test_an_objective_without_weight_masks_nothing():
    batch = ragged_batch([[5, 5, 5]] * 20)
    mlm_only = _masked(batch, dataclasses.replace(CONFIG, msm_weight=0.0))
    msm_only = _masked(batch, dataclasses.replace(CONFIG, mlm_weight=0.0))

    assert len(mlm_only.masked_sets.sets) == 0
    assert len(mlm_only.batch.tokens) == len(batch.tokens)
    assert len(mlm_only.mlm_rows) > 0
    assert len(msm_only.mlm_rows) == 0
    assert len(msm_only.masked_sets.sets) > 0


def test_mask_sets_masks_sets_alone_whatever_the_weights():
    config = dataclasses.replace(CONFIG, msm_weight=0.0)
    masked_batch = mask_sets(ragged_batch([[5, 5, 5]] * 20), torch.Generator().manual_seed(0), config)

    assert len(masked_batch.masked_sets.sets) > 0
    assert len(masked_batch.mlm_rows) == 0


def test_masking_draws_from_the_given_generator_only():
    batch = ragged_batch([[5, 0, 8], [3]] * 10)
    state = torch.get_rng_state()

    first, second = _masked(batch, seed=7), _masked(batch, seed=7)

    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(first.batch.tokens, second.batch.tokens)
    assert torch.equal(first.mlm_rows, second.mlm_rows)
    assert not torch.equal(first.batch.tokens, _masked(batch, seed=8).batch.tokens)


def test_masking_does_not_change_the_input_batch():
    batch = ragged_batch([[5, 0, 8], [3]] * 10)
    whole = batch.slice_subjects(0, batch.subjects)
    copies = {name: value.clone() for name, value in vars(whole).items()}

    _masked(batch)

    assert all(torch.equal(value, copies[name]) for name, value in vars(batch).items())


@settings(max_examples=examples(40), deadline=None)
@given(subjects, configs, st.integers(1, 40), st.integers(0, 1000))
def test_masked_micro_batches_cut_between_patients_within_the_budget(sizes, config, max_rows, seed):
    masked_batch = _masked(ragged_batch(sizes, seed), config, seed)

    parts = [
        masked_batch.slice_subjects(run.start, run.stop)
        for run in micro_batches(masked_batch.batch.rows, max_rows)
    ]

    assert sum(part.batch.subjects for part in parts) == masked_batch.batch.subjects
    assert all(len(part.batch.tokens) <= max_rows or part.batch.subjects == 1 for part in parts)
    for name in ("tokens", "hours", "key_bias", "days"):
        assert torch.equal(
            torch.cat([getattr(part.batch, name) for part in parts]), getattr(masked_batch.batch, name)
        )
    assert torch.equal(torch.cat([part.mlm_targets for part in parts]), masked_batch.mlm_targets)
    for targets in ("masked_sets", "visible_sets"):
        for name in ("tokens", "shares"):
            joined_targets = torch.cat([getattr(getattr(part, targets), name) for part in parts])
            assert torch.equal(joined_targets, getattr(getattr(masked_batch, targets), name))
    tokens = torch.cat([part.batch.tokens[part.mlm_rows] for part in parts])
    assert torch.equal(tokens, masked_batch.batch.tokens[masked_batch.mlm_rows])
    owners = torch.cat(
        [part.batch.days[part.masked_sets.sets[part.masked_sets.set_of_token]] for part in parts]
    )
    assert torch.equal(
        owners, masked_batch.batch.days[masked_batch.masked_sets.sets[masked_batch.masked_sets.set_of_token]]
    )
