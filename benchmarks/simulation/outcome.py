"""The paper's synthetic outcome, in which an event's contribution depends on the events of the patient's other sets.

It follows the appendix "Interleave" of the paper's simulation studies. An event is a vector, not a token of a
vocabulary: an entry of the codebook with Gaussian noise. These vectors are the encoders' input rows.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

CODES = 32
D_MODEL = 32
CONCENTRATIONS = {
    "uniform": np.full(CODES, 0.5),  # α0 for every code
    "non-uniform": 5 * 0.8 ** np.arange(1, CODES + 1),  # r α, r α² … r α^K
}


@dataclass(frozen=True)
class SetDistribution:
    """A codebook, and the distribution of its codes over sets."""

    codebook: np.ndarray  # f32 [codes, d_model]
    concentration: np.ndarray  # f64 [codes], of the Dirichlet distribution of each set's shares of codes
    noise: float  # σ, the standard deviation of an event's noise in every dimension
    sets: int = 4  # per patient
    events: int = 6  # per set

    @classmethod
    def draw(cls, codes: str, noise: float, random: np.random.Generator) -> Self:
        """Draw a codebook; `codes` is a key of CONCENTRATIONS."""
        codebook = random.standard_normal((CODES, D_MODEL), dtype=np.float32)
        return cls(codebook, CONCENTRATIONS[codes], noise)

    def subjects(self, count: int, random: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Draw patients: their events, f32 [count, sets, events, d_model], and their outcomes, f32 [count]."""
        shares = random.dirichlet(self.concentration, (count, self.sets)).cumsum(-1)[:, :, None, :-1]
        codes = (random.random((count, self.sets, self.events, 1)) > shares).sum(-1)
        noise = random.standard_normal((*codes.shape, self.codebook.shape[1]), dtype=np.float32)
        events = torch.from_numpy(self.codebook[codes] + np.float32(self.noise) * noise)
        return events, outcome(events)


def outcome(events: Tensor) -> Tensor:
    """Return y = Σ_ij softmax_j(⟨x_ij, s_i⟩) · ⟨x_ij, s_i⟩: [subjects, sets, events, d_model] → [subjects]."""
    scores = torch.einsum("bied,bid->bie", events, context(events))
    return (scores.softmax(-1) * scores).sum((1, 2))


def context(events: Tensor) -> Tensor:
    """Return s_i = Σ_{i'≠i} Σ_j x_i'j / ((sets - 1) √events) of each set i, [subjects, sets, d_model]."""
    _, sets, per_set, _ = events.shape
    sums = events.sum(2)
    return (sums.sum(1, keepdim=True) - sums) / ((sets - 1) * math.sqrt(per_set))
