"""The yardsticks of a pretraining: each guess's loss or score where the model's is told, by the name of its metric."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from torch import Generator

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.data.selection import Selection
from nest_model.training.guesses import lists
from nest_model.training.guesses.mixture import Mixture
from nest_model.training.guesses.popularity import Popularity
from nest_model.training.guesses.sight import Sight
from nest_model.training.masking import MaskedBatch, mask_batch, mask_sets

Mask = Callable[[PackedBatch, Generator, ModelConfig], MaskedBatch]
"""`mask_batch` or `mask_sets`."""
Masked = Callable[[Mask], Iterable[MaskedBatch]]
"""Some patients, masked by it."""

MOST_FIT_PATIENTS = 1_000
"""Training patients, at most, on whom the shares of the mixtures are fitted; drawn by chance."""


def fit_patients(patients: int, seed: int) -> np.ndarray:
    """Return which of the training patients the shares are fitted on, in their order."""
    return np.sort(np.random.default_rng(seed).permutation(patients)[:MOST_FIT_PATIENTS])


def has_one_set_alone(selection: Selection) -> bool:
    """Return whether each patient of a selection has one set alone that holds anything, or none."""
    patient = np.repeat(np.arange(len(selection)), np.diff(selection.set_offsets))
    return bool(np.bincount(patient[selection.event_counts > 0], minlength=1).max() <= 1)


def yardsticks(popularity: Popularity, train: Masked, val: Masked) -> dict[str, dict[str, Any]]:
    """Return of each metric the constant's value, the mixture's, and the patient's own share in it.

    A metric of which nothing is asked (no token or no set is masked) is left out.

    Args:
        popularity: of the training patients.
        train: those the shares are fitted on.
        val: those the model is judged on, under the same masks.
    """
    vocab_size = len(popularity.tokens)
    fit, val_sight = (Sight.of(masked(mask_batch), vocab_size) for masked in (train, val))
    results = {}
    for name, kind in {"val_mlm": Mixture.of_tokens, "val_msm": Mixture.of_sets}.items():
        share, mixture = kind(fit, popularity).best_share(), kind(val_sight, popularity)
        if mixture.cases:
            results[name] = {
                "constant": mixture.nats(0),
                "mixture": mixture.nats(share),
                "own_share": share,
            }
    return results | _of_lists(
        popularity, *(Sight.of(masked(mask_sets), vocab_size) for masked in (train, val))
    )


def _of_lists(popularity: Popularity, fit: Sight, val_sight: Sight) -> dict[str, dict[str, Any]]:
    if not len(val_sight.set_patient):
        return {}
    share = lists.best_share(fit, popularity)
    ranked = {
        "constant": lists.constant_list(popularity.holders, val_sight.patients),
        "constant_by_tokens": lists.constant_list(popularity.tokens, val_sight.patients),
        "mixture": lists.Candidates.of(val_sight, popularity).lists(share),
    }
    scored = {name: vars(lists.scores(val_sight, tokens)) for name, tokens in ranked.items()}
    return {
        f"val_{metric}": {name: of[metric] for name, of in scored.items()} | {"own_share": share}
        for metric in ("recall_at_10", "ndcg_at_10")
    }
