import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score
from torch import nn

from nest_model.config import ModelConfig
from nest_model.data.packed import micro_batches
from nest_model.model.heads import ClassifierHead
from nest_model.training.losses import Counts, pretraining_loss, set_prediction, validation_scores
from nest_model.training.masking import SetTargets, mask_batch, mask_sets
from nest_model.training.objectives.mlm_msm import MaskedTokensAndSets
from nest_model.training.set_scores import rank, top_tokens
from tests.support.examples import examples
from tests.support.factories.ragged import (
    MAX_SET_ROWS,
    VOCAB_SIZE,
    configs,
    ragged_batch,
    seeded_model,
    subjects,
)

CONFIG = ModelConfig(VOCAB_SIZE, d_model=16, heads=2, d_ff=24, layers=2, max_set_rows=MAX_SET_ROWS)


def _gradients(model: nn.Module) -> list[torch.Tensor]:
    return [weight.grad for weight in model.parameters()]


@settings(max_examples=examples(30), deadline=None)
@given(subjects, configs, st.integers(1, 40), st.integers(0, 1000))
def test_micro_batches_of_a_step_sum_to_its_losses_and_gradients(sizes, config, max_rows, seed):
    masked_batch = mask_batch(ragged_batch(sizes, seed), torch.Generator().manual_seed(seed), config)
    counts = Counts.of(masked_batch)
    whole_model, cut_model = seeded_model(config, seed), seeded_model(config, seed)

    whole = pretraining_loss(whole_model, masked_batch)
    whole.total.backward()
    micro_batch_list = [
        masked_batch.slice_subjects(run.start, run.stop)
        for run in micro_batches(masked_batch.batch.rows, max_rows)
    ]
    parts = [pretraining_loss(cut_model, part, counts) for part in micro_batch_list]
    for part in parts:
        part.total.backward()

    close = {"rtol": 0, "atol": 1e-12}
    for name in ("total", "mlm", "msm", "own"):
        total = sum(getattr(part, name) for part in parts)
        torch.testing.assert_close(total, getattr(whole, name), **close)
    for a, b in zip(_gradients(whole_model), _gradients(cut_model), strict=True):
        torch.testing.assert_close(a, b, **close)


@settings(max_examples=examples(30), deadline=None)
@given(subjects, configs, st.integers(0, 1000))
def test_validation_scores_equal_separate_passes(sizes, config, seed):
    masked_batch = mask_batch(ragged_batch(sizes, seed), torch.Generator().manual_seed(seed), config)
    model = seeded_model(config, seed)
    losses = pretraining_loss(model, masked_batch, Counts(1, 1, 1))
    sums, prediction = validation_scores(model, masked_batch)

    close = {"rtol": 0, "atol": 1e-11}
    for name, value in sums.items():
        torch.testing.assert_close(value.detach(), getattr(losses, name), **close)
    alone = set_prediction(model, masked_batch)
    for row in ("cls", "mask", "head"):
        a, b = getattr(prediction, row), getattr(alone, row)
        torch.testing.assert_close(a.recall, b.recall, **close)
        torch.testing.assert_close(a.ndcg, b.ndcg, **close)


@pytest.mark.parametrize("sizes", [[[0]], [[0, 0], [0]]])
def test_loss_terms_without_rows_are_0_with_gradients_of_0(sizes):
    model = seeded_model(CONFIG)

    losses = pretraining_loss(model, mask_batch(ragged_batch(sizes), torch.Generator(), CONFIG))
    losses.total.backward()

    assert (losses.total.item(), losses.mlm.item(), losses.msm.item()) == (0, 0, 0)
    assert all(gradient is not None and gradient.count_nonzero() == 0 for gradient in _gradients(model))


def test_msm_is_0_when_the_head_predicts_the_exact_shares():
    config = dataclasses.replace(CONFIG, set_mask_share=1.0)
    masked_batch = mask_batch(ragged_batch([[8]], seed=2), torch.Generator(), config)
    model = seeded_model(config)
    with torch.no_grad():
        model.set_head.out.weight.zero_()
        model.set_head.out.bias.fill_(-1e3)
        model.set_head.out.bias[masked_batch.masked_sets.tokens] = masked_batch.masked_sets.shares.log() + 5

    assert len(masked_batch.masked_sets.tokens) > 2
    assert float(pretraining_loss(model, masked_batch).msm) == pytest.approx(0, abs=1e-12)


def test_msm_of_an_even_guess_is_log_vocabulary_minus_entropy():
    config = dataclasses.replace(CONFIG, set_mask_share=1.0)
    masked_batch = mask_batch(ragged_batch([[8]], seed=2), torch.Generator(), config)
    model = seeded_model(config)
    with torch.no_grad():
        model.set_head.out.weight.zero_()
        model.set_head.out.bias.zero_()
    entropy = -sum(share * math.log(share) for share in masked_batch.masked_sets.shares.tolist())

    assert float(pretraining_loss(model, masked_batch).msm) == pytest.approx(math.log(VOCAB_SIZE) - entropy)


def test_the_set_heads_list_ranks_tokens_by_presence():
    config = dataclasses.replace(CONFIG, set_mask_share=1.0)
    masked_batch = mask_batch(ragged_batch([[8]], seed=2), torch.Generator(), config)
    model = seeded_model(config)
    model.set_head.log_presence_ratio[masked_batch.masked_sets.tokens] = 1e3

    assert set_prediction(model, masked_batch).head.ndcg.tolist() == pytest.approx([1])


def _targets(*tokens_of_set: list[int]) -> SetTargets:
    sets = torch.tensor([i for i, tokens in enumerate(tokens_of_set) for _ in tokens])
    tokens = torch.tensor([token for tokens in tokens_of_set for token in sorted(tokens)])
    return SetTargets(torch.arange(len(tokens_of_set)), sets, tokens, torch.ones(len(tokens)).double())


def test_recall_and_ndcg_at_10_worked_by_hand():
    guesses = torch.tensor([list(range(10, 20))] * 4)
    targets = _targets(
        [10, 12, 99],  # ranks 1 and 3 of three
        [50, 60],  # none
        [10],  # the first of one
        list(range(10, 30)),  # ten of twenty, all that can be
    )

    ranking = rank(guesses, targets.set_of_token, targets.tokens)

    ideal_of_three = 1 + 1 / math.log2(3) + 1 / 2
    assert ranking.recall.tolist() == pytest.approx([2 / 3, 0, 1, 0.5])
    assert ranking.ndcg.tolist() == pytest.approx([(1 + 1 / 2) / ideal_of_three, 0, 1, 1])


def test_rank_counts_guesses_for_the_same_set_only():
    targets = _targets([7, 8], [7])
    ranking = rank(torch.tensor([[5, 6], [7, 8]]), targets.set_of_token, targets.tokens)

    assert ranking.recall.tolist() == [0, 1]


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_ndcg_equals_scikit_learn(seed: int):
    rng = np.random.default_rng(seed)
    sets, vocab_size = 4, 40
    scores = rng.permuted(np.tile(np.arange(5, vocab_size, dtype=float), (sets, 1)), axis=1)
    truth = rng.random((sets, vocab_size - 5)) < rng.uniform(0.05, 0.9)
    truth[:, 0] = True
    guesses = torch.from_numpy(np.argsort(-scores, axis=1)[:, :10] + 5)
    target_sets, target_tokens = np.nonzero(truth)

    ranking = rank(guesses, torch.from_numpy(target_sets), torch.from_numpy(target_tokens + 5))

    for place in range(sets):
        expected = ndcg_score(truth[[place]].astype(float), scores[[place]], k=10)
        assert float(ranking.ndcg[place]) == pytest.approx(expected)


def test_top_tokens_excludes_special_tokens():
    logits = torch.zeros(2, 30)
    logits[:, :5] = 100.0
    logits[:, 20] = 1.0

    guesses = top_tokens(logits)

    assert guesses.shape == (2, 10)
    assert (guesses >= 5).all()
    assert guesses[:, 0].tolist() == [20, 20]


def test_top_tokens_returns_all_of_a_small_vocabulary():
    assert sorted(top_tokens(torch.randn(1, 8))[0].tolist()) == [5, 6, 7]


def test_set_prediction_reads_the_cls_and_the_mask_row_of_each_masked_set():
    masked_batch = mask_sets(ragged_batch([[8, 4, 0], [6, 2]] * 5), torch.Generator().manual_seed(0), CONFIG)
    model = seeded_model(CONFIG)
    sets, hidden_states = len(masked_batch.masked_sets.sets), model(masked_batch.batch)
    first = masked_batch.batch.cls_rows[masked_batch.masked_sets.sets]

    prediction = set_prediction(model, masked_batch)

    for ranking, rows in ((prediction.cls, first), (prediction.mask, first + 1)):
        guesses = top_tokens(hidden_states[rows] @ model.embedding.weight.T)
        expected = rank(guesses, masked_batch.masked_sets.set_of_token, masked_batch.masked_sets.tokens)
        assert ranking.recall.shape == (sets,)
        assert torch.equal(ranking.recall, expected.recall)
        assert torch.equal(ranking.ndcg, expected.ndcg)
    assert (masked_batch.batch.tokens[first + 1] == 4).all()
    assert not prediction.cls.recall.requires_grad


def test_a_model_without_msm_is_also_scored_with_masks_that_weigh_as_one_row():
    """With sets of at most two rows a [MASK] stands for one row, and both scores are the same."""

    def scores(config: ModelConfig) -> dict[str, float]:
        batch = ragged_batch([[8, 4, 0], [6, 2]] * 20)
        evaluation = MaskedTokensAndSets(config).last_evaluation
        masked_batch = evaluation.corrupt(batch, torch.Generator().manual_seed(0))
        return evaluation.scores(seeded_model(config), masked_batch)

    assert not any(name.endswith("one_row") for name in scores(CONFIG))
    alone = dataclasses.replace(CONFIG, msm_weight=0.0)
    with_msm, without = scores(CONFIG), scores(alone)
    assert {name: without[name] for name in with_msm} == with_msm
    of_one_row = {
        name.removesuffix("_one_row"): value for name, value in without.items() if "one_row" in name
    }
    assert of_one_row.keys() == with_msm.keys()
    assert of_one_row != with_msm
    of_two_rows = scores(dataclasses.replace(alone, max_set_rows=2))
    for name in with_msm:
        assert of_two_rows[f"{name}_one_row"] == of_two_rows[name]
        assert of_two_rows[name] == of_one_row[name]


def test_set_prediction_without_a_masked_set_is_empty():
    masked_batch = mask_sets(ragged_batch([[0]]), torch.Generator(), CONFIG)

    assert set_prediction(seeded_model(CONFIG), masked_batch).mask.ndcg.shape == (0,)


def test_classifier_head_uses_dropout_in_training_only():
    torch.manual_seed(0)
    head, rows = ClassifierHead(16, 3, dropout=0.5), torch.randn(4, 1, 16)

    assert not torch.equal(head(rows), head(rows))
    head.eval()
    assert torch.equal(head(rows), head(rows))
    assert head(rows).shape == (4, 3)
