"""Where a model looks, beside where it would look if it had learnt nothing of it: two nulls on the same examples.

Counting alone: those who ask keep for themselves what they do, and share the rest evenly among the others, whatever
these are. Untrained: the same model with weights as they are drawn at the start, five draws of them, as one may by
chance prefer what another does not. A third is what all is measured from: an even share, which looks at every row
alike. Intervals are of resampled patients, the same for the model and both nulls; each takes one of the five draws.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from nest_model.data.selection import Selection
from nest_model.data.seqsets import SeqSets
from nest_model.evaluation.bootstrap import Resamples
from nest_model.evaluation.metrics import Score
from nest_model.model.attention_shares import CLASSES, SETS_BACK, attended
from nest_model.model.encoder import NestModel
from schemas.suppress import SMALLEST_SHOWN

DRAWS = 5
"""Of untrained weights."""

NULLS = ("by_count", "untrained")


def attention_beside_nulls(
    model: NestModel, seqsets: SeqSets, selection: Selection, *, row_budget: int
) -> dict[str, Any]:
    """Return what `attended` measures of a model beside both nulls, of classes that eleven patients have a row of.

    Returns:
        `kinds` and `sets_back`, each with `layers`: of the model (`observed`) and of each null, by class, layer by
        layer, in shares of 1 beyond an even share; and `means` over layers, by class, of each and of the model less
        each null. Of `sets_back` also `distance`, the same of how many sets farther back than an even share it looks.
    """
    profiles = attended(model, seqsets, selection, row_budget=row_budget)
    untrained = [
        attended(untrained_like(model, seed), seqsets, selection, row_budget=row_budget)
        for seed in range(DRAWS)
    ]
    kinds, back = (
        {
            "observed": profile.observed[None],
            "by_count": profile.by_count[None],
            "untrained": np.stack([draw[place].observed for draw in untrained]),
        }
        for place, profile in enumerate(profiles)
    )
    of_kinds, of_sets = (profile.asking for profile in profiles)
    return {
        "kinds": _beside(kinds, of_kinds, CLASSES),
        "sets_back": _beside(back, of_sets, SETS_BACK) | {"distance": _distance(back, of_sets[:, 0])},
    }


def untrained_like(model: NestModel, seed: int) -> NestModel:
    """Return a model of the same config with weights as drawn at the start; torch's own generator is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return NestModel(model.config).to(model.embedding.weight.device)


def _beside(ways: Mapping[str, np.ndarray], asking: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    """Return `layers` and `means`, see `attention_beside_nulls`.

    Args:
        ways: f64 [draws, patients, layers, classes] each, sums over those who ask.
        asking: [patients, classes], how many do.
    """
    shown = [k for k in range(len(names)) if np.count_nonzero(asking[:, k]) >= SMALLEST_SHOWN]
    return {
        "layers": {
            way: {names[k]: _by_layer(sums[..., k], asking[:, k]) for k in shown}
            for way, sums in ways.items()
        },
        "means": {
            names[k]: _less_nulls({way: sums[..., k] for way, sums in ways.items()}, asking[:, k])
            for k in shown
        },
    }


def _by_layer(sums: np.ndarray, asking: np.ndarray) -> list[float]:
    """Return the mean over draws and those who ask, layer by layer, of sums [draws, patients, layers]."""
    return [round(float(value), 6) for value in sums.mean(axis=0).sum(axis=0) / asking.sum()]


def _distance(ways: Mapping[str, np.ndarray], asking: np.ndarray) -> dict[str, Any] | None:
    """Return how many sets farther back than an even share, beside the nulls; None of under eleven patients."""
    if np.count_nonzero(asking) < SMALLEST_SHOWN:
        return None
    sets = np.arange(len(SETS_BACK))
    return _less_nulls({way: sums @ sets for way, sums in ways.items()}, asking)


def _less_nulls(ways: Mapping[str, np.ndarray], asking: np.ndarray) -> dict[str, Any]:
    """Return the mean over layers and over those who ask: of each way, and of the model less each null.

    Args:
        ways: [draws, patients, layers] each, sums over those who ask.
        asking: [patients], how many do.
    """
    means = {way: sums.mean(axis=2) for way, sums in ways.items()}
    less = {f"less_{null}": means["observed"] - means[null] for null in NULLS}
    return {name: _mean(sums, asking).json() for name, sums in (means | less).items()}


def _mean(sums: np.ndarray, asking: np.ndarray) -> Score:
    """Return the mean of sums [draws, patients] over those who ask; a resample takes one of the draws, in turn."""
    weights = Resamples.of(np.arange(len(asking))).draws.astype(float)
    asked = weights @ asking
    drawn = (weights @ sums.T)[np.arange(len(weights)), np.arange(len(weights)) % len(sums)]
    samples = np.divide(drawn, asked, out=np.full(len(drawn), np.nan), where=asked > 0)
    return Score(float(sums.mean(axis=0).sum() / asking.sum()), samples)
