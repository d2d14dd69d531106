import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from nest_model.config import ModelConfig
from nest_model.model.heads import Votes, mean_vote
from nest_model.model.readout import vote_logits
from tests.support import reference_model
from tests.support.examples import examples
from tests.support.factories.ragged import MAX_SET_ROWS, VOCAB_SIZE, ragged_batch, seeded_model, subjects

CONFIG = ModelConfig(VOCAB_SIZE, d_model=16, heads=2, d_ff=24, layers=1, max_set_rows=MAX_SET_ROWS)
CLASSES = 3
CLOSE = {"rtol": 0, "atol": 1e-12}


def random_votes(scale: float = 1.0) -> Votes:
    torch.manual_seed(1)
    votes = Votes(CONFIG.d_model, CLASSES, dropout=0.5).double().eval()
    for weight in votes.parameters():
        nn.init.normal_(weight, std=scale)
    return votes


def close_to(expected: torch.Tensor) -> dict[str, float]:
    return CLOSE | {"atol": 1e-12 * max(1, float(expected.detach().abs().max()))}


@settings(max_examples=examples(40), deadline=None)
@given(subjects, st.integers(0, 1000), st.sampled_from([0.3, 2.0]))
def test_votes_equal_explicit_attention_with_gradients(sizes, seed, scale):
    batch, model, votes = ragged_batch(sizes, seed), seeded_model(CONFIG, seed), random_votes(scale)
    plain = {name: weight.detach().clone().requires_grad_() for name, weight in votes.named_parameters()}
    table = model.embedding.weight.detach().clone().requires_grad_()
    directions = torch.randn(batch.subjects, CLASSES).double()

    logits = vote_logits(votes, model, batch)
    (logits * directions).sum().backward()
    expected = reference_model.votes(plain, table, batch)
    (expected * directions).sum().backward()

    torch.testing.assert_close(logits, expected, **close_to(expected))
    pairs = [(weight, plain[name]) for name, weight in votes.named_parameters()]
    for weight, of_plain in [*pairs, (model.embedding.weight, table)]:
        gradient = torch.zeros_like(weight) if of_plain.grad is None else of_plain.grad
        torch.testing.assert_close(weight.grad, gradient, **close_to(gradient))


def test_votes_start_at_0_and_use_dropout_in_training():
    votes, model, batch = (
        Votes(16, CLASSES, dropout=0.5).double(),
        seeded_model(CONFIG),
        ragged_batch([[3, 4]]),
    )
    assert vote_logits(votes, model, batch).count_nonzero() == 0

    votes = random_votes().train()
    assert not torch.equal(vote_logits(votes, model, batch), vote_logits(votes, model, batch))


def test_votes_let_a_single_event_among_hundreds_decide():
    """An event with attention keeps its vote however many events without attention there are."""
    votes, rows = random_votes(0.0), torch.zeros(301, 16, dtype=torch.float64)
    nn.init.ones_(votes.norm.weight)
    rows[-1, 0] = 1.0
    direction = nn.functional.layer_norm(rows, (16,))[-1]
    with torch.no_grad():
        votes.score[0].weight[0], votes.vote[0].weight[0] = 3 * direction, direction

    (logits,) = votes(rows, torch.zeros(301, dtype=torch.long), torch.ones(301, dtype=torch.bool), 1)

    assert logits[0] > 0.99 * float(direction @ direction)
    assert logits[1:].count_nonzero() == 0


def test_the_order_of_events_changes_no_vote():
    votes, model = random_votes(), seeded_model(CONFIG)
    batch = ragged_batch([[3, 5], [2]])
    order = torch.tensor([0, 3, 1, 2, 4, 9, 8, 5, 7, 6, 10, 12, 11])
    permuted_batch = dataclasses.replace(batch, tokens=batch.tokens[order], hours=batch.hours[order])

    torch.testing.assert_close(
        vote_logits(votes, model, permuted_batch), vote_logits(votes, model, batch), **CLOSE
    )


def test_votes_of_a_patient_do_not_depend_on_the_batch():
    votes, model = random_votes(), seeded_model(CONFIG)
    batch = ragged_batch([[3, 5], [2], [0, 4]])

    alone = [vote_logits(votes, model, batch.slice_subjects(index, index + 1)) for index in range(3)]

    torch.testing.assert_close(torch.cat(alone), vote_logits(votes, model, batch), **CLOSE)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_mean_vote_of_half_precision_is_float32(dtype):
    """As under autocast on a GPU, where exponentials have another precision than linear layers."""
    torch.manual_seed(0)
    scores, votes = torch.randn(400, 3).to(dtype), torch.randn(400, 3).to(dtype)
    example = torch.arange(400) // 200

    means = mean_vote(scores, votes, example, 2)

    assert means.dtype == torch.float32
    torch.testing.assert_close(means, mean_vote(scores.float(), votes.float(), example, 2), rtol=0, atol=0)


def test_mean_vote_handles_extreme_scores():
    scores, votes = torch.tensor([[1e4], [-1e4], [9e3]]), torch.tensor([[2.0], [3.0], [5.0]])

    assert mean_vote(scores, votes, torch.tensor([0, 1, 0]), 3).tolist() == [[2.0], [0.0], [0.0]]
