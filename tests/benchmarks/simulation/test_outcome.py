import math

import numpy as np
import pytest
import torch

from benchmarks.simulation.outcome import CODES, CONCENTRATIONS, D_MODEL, SetDistribution, outcome

COUNT = 40


def drawn(codes: str = "uniform", noise: float = 0.5, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(seed)
    return SetDistribution.draw(codes, noise, random).subjects(COUNT, random)


def by_loops(sets: list[list[list[float]]]) -> float:
    """The paper's two equations as they stand, for one subject."""
    total = 0.0
    for i, mine in enumerate(sets):
        others = [event for k, events in enumerate(sets) if k != i for event in events]
        scale = (len(sets) - 1) * math.sqrt(len(mine))
        summary = [sum(event[d] for event in others) / scale for d in range(len(mine[0]))]
        scores = [sum(x * s for x, s in zip(event, summary, strict=True)) for event in mine]
        weights = [math.exp(score) for score in scores]
        total += sum(w * score for w, score in zip(weights, scores, strict=True)) / sum(weights)
    return total


def test_the_outcome_is_what_plain_loops_over_the_paper_s_equations_give():
    events, outcomes = drawn()
    expected = [by_loops(subject) for subject in events.double().tolist()]
    assert outcomes.tolist() == pytest.approx(expected, rel=1e-4)


def test_neither_the_order_of_a_set_s_events_nor_that_of_the_sets_changes_the_outcome():
    events, outcomes = drawn()
    shuffled = events[:, torch.tensor([2, 0, 3, 1])][:, :, torch.randperm(events.shape[2])]
    assert torch.allclose(outcome(shuffled), outcomes, rtol=1e-4)


def test_the_same_set_counts_differently_beside_other_sets():
    events, outcomes = drawn()
    events[:, 1:] = -events[:, 1:]
    assert (outcome(events) - outcomes).abs().min() > 0


def test_without_noise_every_event_is_an_entry_of_the_codebook_and_with_it_is_off_by_sigma():
    (clean, _), (noisy, _) = drawn(noise=0.0), drawn(noise=0.7)
    assert len(torch.unique(clean.flatten(0, 2), dim=0)) <= CODES
    assert (noisy - clean).std().item() == pytest.approx(0.7, rel=0.02)
    assert clean.shape == (COUNT, 4, 6, D_MODEL)


@pytest.mark.parametrize("codes", CONCENTRATIONS)
def test_codes_come_as_often_as_their_concentration_says(codes):
    random = np.random.default_rng(1)
    world = SetDistribution(np.eye(CODES, dtype=np.float32), CONCENTRATIONS[codes], noise=0.0)
    events, _ = world.subjects(20_000, random)
    expected = CONCENTRATIONS[codes] / CONCENTRATIONS[codes].sum()
    assert events.mean((0, 1, 2)).numpy() == pytest.approx(expected, abs=0.004)


def test_the_non_uniform_concentration_falls_from_r_alpha_by_alpha():
    assert CONCENTRATIONS["non-uniform"][:3].tolist() == pytest.approx([4.0, 3.2, 2.56])


def test_the_codes_of_a_set_are_alike_as_they_share_one_draw_of_shares():
    world = SetDistribution(np.eye(CODES, dtype=np.float32), CONCENTRATIONS["uniform"], noise=0.0)
    events, _ = world.subjects(5_000, np.random.default_rng(2))
    first, second, elsewhere = events[:, 0, 0], events[:, 0, 1], events[:, 1, 0]
    within, between = (first * second).sum(-1).mean(), (first * elsewhere).sum(-1).mean()
    assert within.item() == pytest.approx(1.5 / 17, abs=0.015)  # (α + 1) / (K α + 1)
    assert between.item() == pytest.approx(1 / CODES, abs=0.01)
