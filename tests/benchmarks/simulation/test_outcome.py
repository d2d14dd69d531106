import math

import numpy as np
import pytest
import torch

from benchmarks.simulation.outcome import CODES, CONCENTRATIONS, D_MODEL, SetDistribution, outcome

COUNT = 40


def draw_patients(
    codes: str = "uniform", noise: float = 0.5, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(seed)
    return SetDistribution.draw(codes, noise, random).subjects(COUNT, random)


def by_loops(sets: list[list[list[float]]]) -> float:
    """Compute the paper's two equations for one patient."""
    total = 0.0
    for i, mine in enumerate(sets):
        other_events = [event for k, events in enumerate(sets) if k != i for event in events]
        scale = (len(sets) - 1) * math.sqrt(len(mine))
        summary = [sum(event[d] for event in other_events) / scale for d in range(len(mine[0]))]
        scores = [sum(x * s for x, s in zip(event, summary, strict=True)) for event in mine]
        weights = [math.exp(score) for score in scores]
        total += sum(w * score for w, score in zip(weights, scores, strict=True)) / sum(weights)
    return total


def test_outcome_equals_plain_loops_over_the_equations():
    events, outcomes = draw_patients()
    expected = [by_loops(subject) for subject in events.double().tolist()]
    assert outcomes.tolist() == pytest.approx(expected, rel=1e-4)


def test_outcome_does_not_depend_on_the_order_of_events_or_sets():
    events, outcomes = draw_patients()
    permuted_events = events[:, torch.tensor([2, 0, 3, 1])][:, :, torch.randperm(events.shape[2])]
    assert torch.allclose(outcome(permuted_events), outcomes, rtol=1e-4)


def test_outcome_depends_on_the_other_sets():
    events, outcomes = draw_patients()
    events[:, 1:] = -events[:, 1:]
    assert (outcome(events) - outcomes).abs().min() > 0


def test_events_are_codebook_entries_with_noise_of_sigma():
    (clean, _), (noisy, _) = draw_patients(noise=0.0), draw_patients(noise=0.7)
    assert len(torch.unique(clean.flatten(0, 2), dim=0)) <= CODES
    assert (noisy - clean).std().item() == pytest.approx(0.7, rel=0.02)
    assert clean.shape == (COUNT, 4, 6, D_MODEL)


@pytest.mark.parametrize("codes", CONCENTRATIONS)
def test_code_frequencies_follow_the_concentration(codes):
    random = np.random.default_rng(1)
    world = SetDistribution(np.eye(CODES, dtype=np.float32), CONCENTRATIONS[codes], noise=0.0)
    events, _ = world.subjects(20_000, random)
    expected = CONCENTRATIONS[codes] / CONCENTRATIONS[codes].sum()
    assert events.mean((0, 1, 2)).numpy() == pytest.approx(expected, abs=0.004)


def test_non_uniform_concentration_falls_geometrically():
    assert CONCENTRATIONS["non-uniform"][:3].tolist() == pytest.approx([4.0, 3.2, 2.56])


def test_codes_within_a_set_are_correlated():
    world = SetDistribution(np.eye(CODES, dtype=np.float32), CONCENTRATIONS["uniform"], noise=0.0)
    events, _ = world.subjects(5_000, np.random.default_rng(2))
    first, second, elsewhere = events[:, 0, 0], events[:, 0, 1], events[:, 1, 0]
    same_set, other_sets = (first * second).sum(-1).mean(), (first * elsewhere).sum(-1).mean()
    assert same_set.item() == pytest.approx(1.5 / 17, abs=0.015)  # (α + 1) / (K α + 1)
    assert other_sets.item() == pytest.approx(1 / CODES, abs=0.01)
