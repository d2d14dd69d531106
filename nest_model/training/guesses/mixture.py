"""A mixture of the constant guess and the same patient's visible tokens, with a share fitted on training patients."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from nest_model.training.guesses.popularity import Popularity
from nest_model.training.guesses.sight import MaskedPatients

SHARES = np.linspace(0, 0.99, 100)  # below 1, or tokens new to a patient would be impossible


@dataclass(frozen=True)
class Mixture:
    """Targets with their probabilities under the constant guess and under the patient's visible sets."""

    weight: np.ndarray  # f64 [targets]
    constant: np.ndarray  # f64 [targets]
    history: np.ndarray  # f64 [targets]
    entropy: float  # of the targets, subtracted from the loss
    cases: int  # number of cases the mean loss is over

    @classmethod
    def of_tokens(cls, patients: MaskedPatients, popularity: Popularity) -> Self:
        """Build the MLM mixture: masked tokens, with the patient's visible tokens."""
        constant = popularity.unigram[patients.token]
        history = patients.visible_values(
            patients.visible.token_share, patients.token_patient, patients.token, constant
        )
        return cls(np.ones(len(constant)), constant, history, entropy=0.0, cases=len(constant))

    @classmethod
    def of_sets(cls, patients: MaskedPatients, popularity: Popularity) -> Self:
        """Build the MSM mixture: masked sets' distributions, with the mean one of the patient's visible sets."""
        share, patient = patients.target_share, patients.set_patient[patients.target_set]
        constant = popularity.mean_set[patients.target_token]
        history = patients.visible_values(
            patients.visible.set_share, patient, patients.target_token, constant
        )
        return cls(share, constant, history, -float(share @ np.log(share)), cases=len(patients.set_patient))

    def nats(self, own_share: float) -> float:
        """Return the mean loss of (1 - own_share) · constant + own_share · history."""
        guess = (1 - own_share) * self.constant + own_share * self.history
        return (-float(self.weight @ np.log(guess)) - self.entropy) / self.cases

    def best_share(self) -> float:
        """Return the share in `SHARES` with the lowest loss; 0 without cases."""
        if not self.cases:
            return 0.0
        return float(SHARES[np.argmin([self.nats(share) for share in SHARES])])
