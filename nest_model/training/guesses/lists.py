"""Set prediction without a model: the ten likeliest tokens of a masked set, scored like the model's lists."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from nest_model.training.guesses.frequent import first_k, most_common
from nest_model.training.guesses.popularity import FIRST_TOKEN, Popularity
from nest_model.training.guesses.sight import MaskedPatients
from nest_model.training.set_scores import K, rank

SHARES = np.linspace(0, 1, 21)


@dataclass(frozen=True)
class ListScores:
    """Mean scores over the masked sets."""

    recall_at_10: float
    ndcg_at_10: float


def constant_list(counts: np.ndarray, patients: int) -> np.ndarray:
    """Return the K most common tokens by the given counts, the same for every patient: i64 [patients, K]."""
    return np.broadcast_to(most_common(counts, K), (patients, min(K, len(counts) - FIRST_TOKEN)))


@dataclass(frozen=True)
class CandidateTokens:
    """Candidates for a patient's list: the visible tokens and the K most common ones, which also settle ties."""

    patients: int
    patient: np.ndarray  # i64 [candidates], rising
    token: np.ndarray  # i64 [candidates]
    constant: np.ndarray  # f64 [candidates], share of all sets that hold the token
    history: np.ndarray  # f64 [candidates], share of the patient's visible sets that hold it

    @classmethod
    def of(cls, patients: MaskedPatients, popularity: Popularity) -> Self:
        """Collect each patient's candidates; without visible tokens `history` equals `constant`."""
        common = most_common(popularity.holders, K)
        patient = np.repeat(np.arange(patients.patients), len(common))
        pairs = np.r_[
            patient * patients.vocab_size + np.tile(common, patients.patients),
            patients.visible.patient * patients.vocab_size + patients.visible.token,
        ]
        patient, token = np.divmod(np.unique(pairs), patients.vocab_size)
        constant = popularity.holding[token]
        history_shares = patients.visible_values(patients.visible.holding, patient, token, constant)
        order = np.lexsort([token, -constant, patient])
        return cls(patients.patients, patient[order], token[order], constant[order], history_shares[order])

    def lists(self, own_share: float) -> np.ndarray:
        """Return each patient's K best by (1 - own_share) · constant + own_share · history: i64 [patients, K]."""
        score = (1 - own_share) * self.constant + own_share * self.history
        return first_k(self.patient, self.token, [-score], self.patients, K)


def scores(patients: MaskedPatients, guesses: np.ndarray) -> ListScores:
    """Score the list of each patient, i64 [patients, K], on its masked sets."""
    targets = (torch.from_numpy(array) for array in (patients.target_set, patients.target_token))
    ranking = rank(torch.from_numpy(guesses[patients.set_patient]), *targets)
    return ListScores(float(ranking.recall.mean()), float(ranking.ndcg.mean()))


def best_share(patients: MaskedPatients, popularity: Popularity) -> float:
    """Return the share in `SHARES` with the highest NDCG; 0 without masked sets."""
    if not len(patients.set_patient):
        return 0.0
    candidates = CandidateTokens.of(patients, popularity)
    ndcg = [scores(patients, candidates.lists(share)).ndcg_at_10 for share in SHARES]
    return float(SHARES[np.argmax(ndcg)])
