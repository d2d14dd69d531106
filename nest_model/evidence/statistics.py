"""How sure a difference is: the bootstrap's p, the paired test over seeds, and Holm's correction for many questions."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from scipy.stats import norm, ttest_rel

Key = TypeVar("Key")


def bootstrap_p(difference: float, resampled_differences: np.ndarray) -> float | None:
    """Return the two-sided p of a difference by its standard error over the resamples, [resamples].

    The difference over its bootstrap standard error is taken as standard normal (Efron and Tibshirani 1993, An
    Introduction to the Bootstrap, section 12.5). Shares of a thousand resamples could not be under 0.002, and then no
    difference among a hundred would be sure after a correction. None without two defined resamples.
    """
    values = resampled_differences[np.isfinite(resampled_differences)]
    if len(values) < 2:
        return None
    error = float(values.std(ddof=1))
    if error == 0:
        return 1.0 if difference == 0 else 0.0
    return float(2 * norm.sf(abs(difference) / error))


def seeds_p(scores: Sequence[float], other_scores: Sequence[float]) -> float | None:
    """Return p of the two-sided paired t-test over the seeds of two models; None for under two seeds or no spread."""
    if len(scores) < 2 or len(scores) != len(other_scores):
        return None
    p = float(ttest_rel(scores, other_scores).pvalue)
    return None if np.isnan(p) else p


def holm(p_values: Mapping[Key, float]) -> dict[Key, float]:
    """Return the p values corrected for their number by Holm's step-down procedure (1979)."""
    order = sorted(p_values, key=lambda key: p_values[key])
    corrected_p, floor = dict[Key, float](), 0.0
    for place, key in enumerate(order):
        floor = max(floor, min(1.0, (len(order) - place) * p_values[key]))
        corrected_p[key] = floor
    return corrected_p
