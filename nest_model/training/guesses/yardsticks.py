"""The yardsticks of a pretraining: the loss or score of each model-free guess, by metric name."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from torch import Generator

from nest_model.data.packed import PackedBatch
from nest_model.data.selection import Selection
from nest_model.training.guesses import lists
from nest_model.training.guesses.mixture import Mixture
from nest_model.training.guesses.popularity import Popularity
from nest_model.training.guesses.sight import MaskedPatients
from nest_model.training.masking import MaskedBatch

Mask = Callable[[PackedBatch, Generator], MaskedBatch]
"""Masks some patients of a batch; the generator is the only source of randomness."""
MaskedBatches = Callable[[Mask], Iterable[MaskedBatch]]
"""Yields some patients masked by the given function."""

MOST_FIT_PATIENTS = 1_000
"""The maximum number of training patients, drawn at random, on whom the mixtures' shares are fitted."""


def fit_patients(patients: int, seed: int) -> np.ndarray:
    """Return the training patients on whom the shares are fitted, in rising order."""
    return np.sort(np.random.default_rng(seed).permutation(patients)[:MOST_FIT_PATIENTS])


def has_single_sets(selection: Selection) -> bool:
    """Return whether no patient of a selection has more than one non-empty set."""
    patient = np.repeat(np.arange(len(selection)), np.diff(selection.set_offsets))
    return bool(np.bincount(patient[selection.event_counts > 0], minlength=1).max() <= 1)


def yardsticks(
    popularity: Popularity, train: MaskedBatches, val: MaskedBatches, corrupt: Mask, hide_sets: Mask
) -> dict[str, dict[str, Any]]:
    """Return each metric's constant value, mixture value, and the mixture's share of the patient's own sets.

    A metric without masked tokens or sets is left out.

    Args:
        popularity: statistics of the training patients.
        train: the patients on whom the shares are fitted.
        val: the patients on whom the model is evaluated.
        corrupt: the objective's own, so that the guesses see the masks that the model sees.
        hide_sets: for set prediction.
    """
    vocab_size = len(popularity.tokens)
    train_patients, val_patients = (
        MaskedPatients.of(masked_batches(corrupt), vocab_size) for masked_batches in (train, val)
    )
    results = {}
    for name, kind in {"val_mlm": Mixture.of_tokens, "val_msm": Mixture.of_sets}.items():
        share, mixture = kind(train_patients, popularity).best_share(), kind(val_patients, popularity)
        if mixture.cases:
            results[name] = {
                "constant": mixture.nats(0),
                "mixture": mixture.nats(share),
                "own_share": share,
            }
    return results | _list_scores(
        popularity,
        *(MaskedPatients.of(masked_batches(hide_sets), vocab_size) for masked_batches in (train, val)),
    )


def _list_scores(
    popularity: Popularity, train_patients: MaskedPatients, val_patients: MaskedPatients
) -> dict[str, dict[str, Any]]:
    if not len(val_patients.set_patient):
        return {}
    share = lists.best_share(train_patients, popularity)
    lists_by_guess = {
        "constant": lists.constant_list(popularity.holders, val_patients.patients),
        "constant_by_tokens": lists.constant_list(popularity.tokens, val_patients.patients),
        "mixture": lists.CandidateTokens.of(val_patients, popularity).lists(share),
    }
    scores_by_guess = {
        name: vars(lists.scores(val_patients, tokens)) for name, tokens in lists_by_guess.items()
    }
    return {
        f"val_{metric}": {name: scores[metric] for name, scores in scores_by_guess.items()}
        | {"own_share": share}
        for metric in ("recall_at_10", "ndcg_at_10")
    }
