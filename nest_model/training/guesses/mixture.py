"""A mixture of the constant guess with what is visible of the same patient, in shares that suit training patients."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from nest_model.training.guesses.popularity import Popularity
from nest_model.training.guesses.sight import Sight

SHARES = np.linspace(0, 0.99, 100)  # never all: what a patient has not had yet would be impossible


@dataclass(frozen=True)
class Mixture:
    """Targets, each with its probability under the constant guess and under the patient's own sets."""

    weight: np.ndarray  # f64 [targets]
    constant: np.ndarray  # f64 [targets]
    own: np.ndarray  # f64 [targets]
    entropy: float  # of the targets, taken off
    cases: int  # over which the mean is taken

    @classmethod
    def of_tokens(cls, sight: Sight, popularity: Popularity) -> Self:
        """MLM: each masked token, beside the patient's visible tokens."""
        constant = popularity.unigram[sight.token]
        own = sight.own(sight.visible.of_tokens, sight.token_patient, sight.token, constant)
        return cls(np.ones(len(constant)), constant, own, entropy=0.0, cases=len(constant))

    @classmethod
    def of_sets(cls, sight: Sight, popularity: Popularity) -> Self:
        """MSM: each masked set's distribution, beside the mean of those of the patient's visible sets."""
        share, patient = sight.target_share, sight.set_patient[sight.target_set]
        constant = popularity.mean_set[sight.target_token]
        own = sight.own(sight.visible.of_sets, patient, sight.target_token, constant)
        return cls(share, constant, own, -float(share @ np.log(share)), cases=len(sight.set_patient))

    def nats(self, own_share: float) -> float:
        """Return the mean loss of (1 - own_share) · constant + own_share · own."""
        guess = (1 - own_share) * self.constant + own_share * self.own
        return (-float(self.weight @ np.log(guess)) - self.entropy) / self.cases

    def best_share(self) -> float:
        """Return the share of `SHARES` with the lowest loss; 0 where nothing is asked for."""
        if not self.cases:
            return 0.0
        return float(SHARES[np.argmin([self.nats(share) for share in SHARES])])
