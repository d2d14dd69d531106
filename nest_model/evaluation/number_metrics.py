"""How good predictions of a number are: MAE, R² and Spearman's correlation, also of many weighted resamples at once.

A resample is a vector of row weights; each function returns what scikit-learn or SciPy returns for the rows repeated
as often as the weights say, which the tests check.
"""

from collections.abc import Callable

import numpy as np

from schemas.suppress import SMALLEST_SHOWN

BINS = 10

Metric = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def weighted_mae(truth: np.ndarray, predicted: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the mean absolute error [resamples] under weights [resamples, rows]."""
    return _ratio(weights @ np.abs(truth - predicted), weights.sum(axis=1))


def weighted_r2(truth: np.ndarray, predicted: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the share of the variance explained [resamples]; NaN where the rows drawn do not differ."""
    mean = _ratio(weights @ truth, weights.sum(axis=1))
    spread = (weights * (truth - mean[:, None]) ** 2).sum(axis=1)
    return 1 - _ratio(weights @ (truth - predicted) ** 2, spread)


def weighted_spearman(truth: np.ndarray, predicted: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the correlation of ranks [resamples]; NaN where either does not differ in the rows drawn."""
    ranks = [_ranks(values, weights) for values in (truth, predicted)]
    total = weights.sum(axis=1)
    deviations = [rank - _ratio((weights * rank).sum(axis=1), total)[:, None] for rank in ranks]
    first, second = ((weights * rank**2).sum(axis=1) for rank in deviations)
    return _ratio((weights * deviations[0] * deviations[1]).sum(axis=1), np.sqrt(first * second))


def _ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the rank of each row, [resamples, rows], among rows repeated as often as the weights; ties share one."""
    distinct, place = np.unique(values, return_inverse=True)
    ends = np.cumsum(np.bincount(place, minlength=len(distinct)))
    up_to = np.cumsum(weights[:, np.argsort(place, kind="stable")], axis=1)[:, ends - 1]
    of_ties = np.diff(up_to, axis=1, prepend=0.0)
    ranks: np.ndarray = (up_to - of_ties + (of_ties + 1) / 2)[:, place]
    return ranks


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    ratio: np.ndarray = np.divide(part, whole, out=np.full(np.shape(part), np.nan), where=whole > 0)
    return ratio


WEIGHTED: dict[str, Metric] = {"mae": weighted_mae, "r2": weighted_r2, "spearman": weighted_spearman}


def point(name: str, truth: np.ndarray, predicted: np.ndarray) -> float | None:
    """Return a metric of all rows by scikit-learn or SciPy; None where it is undefined."""
    from scipy.stats import spearmanr
    from sklearn.metrics import mean_absolute_error, r2_score

    if name == "mae":
        return float(mean_absolute_error(truth, predicted))
    differs = len(truth) > 1 and np.ptp(truth) > 0
    if name == "r2":
        return float(r2_score(truth, predicted)) if differs else None
    return float(spearmanr(truth, predicted).statistic) if differs and np.ptp(predicted) > 0 else None


def calibration(
    truth: np.ndarray, predicted: np.ndarray, subject_id: np.ndarray
) -> dict[str, list[float]] | None:
    """Return the mean prediction and the mean number per bin of predictions; None under 22 patients.

    Bins of equal mass, merged from the lowest up until each holds eleven patients.
    """
    edges = np.percentile(predicted, np.linspace(0, 100, BINS + 1)[1:-1])
    bins, groups, group = np.searchsorted(edges, predicted), [], np.empty(0, dtype=np.int64)
    for number in range(BINS):
        group = np.concatenate([group, np.flatnonzero(bins == number)])
        if len(np.unique(subject_id[group])) >= SMALLEST_SHOWN:
            groups.append(group)
            group = np.empty(0, dtype=np.int64)
    if len(groups) < 2:
        return None
    groups[-1] = np.concatenate([groups[-1], group])
    return {
        "expected": [round(float(predicted[rows].mean()), 4) for rows in groups],
        "observed": [round(float(truth[rows].mean()), 4) for rows in groups],
    }
