"""The paper's synthetic outcome: what an event adds depends on the events of the subject's other sets.

After the appendix "Interleave" of the paper's simulation studies. An event is a row of its own, not a token of a
vocabulary: an entry of the codebook with Gaussian noise. The encoders see these rows as they are.
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
class World:
    """One codebook, and how its codes come together in sets."""

    codebook: np.ndarray  # f32 [codes, d_model]
    concentration: np.ndarray  # f64 [codes], of the Dirichlet that each set's shares of codes are drawn from
    noise: float  # σ, the deviation of an event's noise in every dimension
    sets: int = 4  # of a subject
    events: int = 6  # of a set

    @classmethod
    def draw(cls, codes: str, noise: float, random: np.random.Generator) -> Self:
        """Draw a codebook; `codes` is a key of CONCENTRATIONS."""
        codebook = random.standard_normal((CODES, D_MODEL), dtype=np.float32)
        return cls(codebook, CONCENTRATIONS[codes], noise)

    def subjects(self, count: int, random: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Draw subjects: their events, f32 [count, sets, events, d_model], and their outcomes, f32 [count]."""
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
