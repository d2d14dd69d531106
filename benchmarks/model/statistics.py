"""The paper's statistics of throughput: pooled SD over seeds, and a paired t-test between models."""

import math

import numpy as np
from scipy.stats import ttest_rel


def pooled_sd(rates: np.ndarray) -> float:
    """Return √(mean of the seeds' variances + variance of the seeds' means) of rates [seeds, batches].

    See the paper's appendix on computing efficiency. Variances divide by count - 1; a single seed or batch adds 0.
    """
    within_seeds = rates.var(axis=1, ddof=1).mean() if rates.shape[1] > 1 else 0.0
    between_seeds = rates.mean(axis=1).var(ddof=1) if len(rates) > 1 else 0.0
    return math.sqrt(within_seeds + between_seeds)


def paired_p(rates: np.ndarray, other_rates: np.ndarray) -> float | None:
    """Return p of the two-sided paired t-test of the seeds' means; None for fewer than two seeds or equal rates.

    The pairs are seeds, not batches: batches of one seed are consecutive in time and not independent.
    """
    if len(rates) < 2:
        return None
    p = float(ttest_rel(rates.mean(axis=1), other_rates.mean(axis=1)).pvalue)
    return None if math.isnan(p) else p
