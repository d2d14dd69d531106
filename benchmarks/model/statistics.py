"""The paper's figures of a model from its batches' times: pooled SD over seeds, paired t-test between models."""

import math

import numpy as np
from scipy.stats import ttest_rel


def pooled_sd(rates: np.ndarray) -> float:
    """Return √(mean of the seeds' variances + variance of the seeds' means) of rates [seeds, batches].

    The appendix on computing efficiency. Variances over count - 1; a single seed or batch adds 0.
    """
    within = rates.var(axis=1, ddof=1).mean() if rates.shape[1] > 1 else 0.0
    between = rates.mean(axis=1).var(ddof=1) if len(rates) > 1 else 0.0
    return math.sqrt(within + between)


def paired_p(rates: np.ndarray, others: np.ndarray) -> float | None:
    """Return p of the two-sided paired t-test of the seeds' means; None of under two seeds or equal rates.

    Seeds are the pairs and not batches: batches of one seed follow one another in time, and are not independent.
    """
    if len(rates) < 2:
        return None
    p = float(ttest_rel(rates.mean(axis=1), others.mean(axis=1)).pvalue)
    return None if math.isnan(p) else p
