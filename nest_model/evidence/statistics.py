"""How sure a difference is: the bootstrap's p, the paired test over seeds, and Holm's correction for many questions."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from scipy.stats import ttest_rel

Key = TypeVar("Key")


def bootstrap_p(differences: np.ndarray) -> float | None:
    """Return the two-sided p of a difference from its values over the resamples, [resamples].

    Twice the share of resamples on the rarer side of 0, each side with one resample more (Davison and Hinkley 1997,
    Bootstrap Methods and their Application, section 4.4); None without a defined resample.
    """
    defined = differences[np.isfinite(differences)]
    if not len(defined):
        return None
    rarer = min((defined <= 0).sum(), (defined >= 0).sum())
    return float(min(1.0, 2 * (rarer + 1) / (len(defined) + 1)))


def seeds_p(scores: Sequence[float], other_scores: Sequence[float]) -> float | None:
    """Return p of the two-sided paired t-test over the seeds of two models; None for under two seeds or no spread."""
    if len(scores) < 2 or len(scores) != len(other_scores):
        return None
    p = float(ttest_rel(scores, other_scores).pvalue)
    return None if np.isnan(p) else p


def holm(p_values: Mapping[Key, float]) -> dict[Key, float]:
    """Return the p values adjusted for their number by Holm's step-down procedure (1979)."""
    rising = sorted(p_values, key=lambda key: p_values[key])
    adjusted, floor = {}, 0.0
    for place, key in enumerate(rising):
        floor = max(floor, min(1.0, (len(rising) - place) * p_values[key]))
        adjusted[key] = floor
    return adjusted
