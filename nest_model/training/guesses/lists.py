"""Set prediction without a model: the ten tokens a masked set is most likely to hold, scored as the model's are."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from nest_model.training.guesses.frequent import first_k, most_common
from nest_model.training.guesses.popularity import FIRST_TOKEN, Popularity
from nest_model.training.guesses.sight import Sight
from nest_model.training.objectives import K, rank

SHARES = np.linspace(0, 1, 21)


@dataclass(frozen=True)
class Scores:
    """Means over the masked sets."""

    recall_at_10: float
    ndcg_at_10: float


def constant_list(counts: np.ndarray, patients: int) -> np.ndarray:
    """Return the commonest tokens by some count, the same for every patient: i64 [patients, K]."""
    return np.broadcast_to(most_common(counts, K), (patients, min(K, len(counts) - FIRST_TOKEN)))


@dataclass(frozen=True)
class Candidates:
    """What the mixture may put on a patient's list: its visible tokens and the K commonest, ties in their order."""

    patients: int
    patient: np.ndarray  # i64 [candidates], rising
    token: np.ndarray  # i64 [candidates]
    constant: np.ndarray  # f64 [candidates], share of all sets that hold the token
    own: np.ndarray  # f64 [candidates], share of the patient's visible sets that do

    @classmethod
    def of(cls, sight: Sight, popularity: Popularity) -> Self:
        """Gather them for each patient; one of whom nothing is visible has the constant for its own."""
        common = most_common(popularity.holders, K)
        patient = np.repeat(np.arange(sight.patients), len(common))
        pairs = np.r_[
            patient * sight.vocab_size + np.tile(common, sight.patients),
            sight.visible.patient * sight.vocab_size + sight.visible.token,
        ]
        patient, token = np.divmod(np.unique(pairs), sight.vocab_size)
        constant = popularity.holding[token]
        own = sight.own(sight.visible.holding, patient, token, constant)
        order = np.lexsort([token, -constant, patient])
        return cls(sight.patients, patient[order], token[order], constant[order], own[order])

    def lists(self, own_share: float) -> np.ndarray:
        """Return each patient's K best by (1 - own_share) · constant + own_share · own: i64 [patients, K]."""
        score = (1 - own_share) * self.constant + own_share * self.own
        return first_k(self.patient, self.token, [-score], self.patients, K)


def scores(sight: Sight, guesses: np.ndarray) -> Scores:
    """Score the list of each patient, i64 [patients, K], on its masked sets."""
    targets = (torch.from_numpy(of) for of in (sight.target_set, sight.target_token))
    ranking = rank(torch.from_numpy(guesses[sight.set_patient]), *targets)
    return Scores(float(ranking.recall.mean()), float(ranking.ndcg.mean()))


def best_share(sight: Sight, popularity: Popularity) -> float:
    """Return the share of `SHARES` with the highest NDCG; 0 where nothing is asked for."""
    if not len(sight.set_patient):
        return 0.0
    candidates = Candidates.of(sight, popularity)
    ndcg = [scores(sight, candidates.lists(share)).ndcg_at_10 for share in SHARES]
    return float(SHARES[np.argmax(ndcg)])
