"""Intervals by resampling patients, not rows: the stays of one patient are not independent.

One sort of the scores gives AUROC and AP of many resamples at once; a resample is a vector of row weights:
how often the row's patient was drawn. The tests check that both equal scikit-learn's.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

RESAMPLES = 1_000

SEED = 42
"""Seed of the resamples, whatever a model's seed: the same patients are drawn for every model and report."""

_BLOCK_CELLS = 200_000  # weights at a time, 1.6 MB: of 2,000 rows blocks of 16 MB took twice as long
_LEAST_RESAMPLES = (
    8  # at a time: a block sorts the rows once; of 300,000 rows one at a time took twice as long
)


@dataclass(frozen=True)
class Resamples:
    """Draws of patients with replacement, the same ones for every model, metric and task they are used on."""

    subjects: np.ndarray  # [subjects] sorted, distinct
    draws: np.ndarray  # uint16 [resamples, subjects]: how often each was drawn

    @classmethod
    def of(cls, subject_id: np.ndarray, *, count: int = RESAMPLES, seed: int = SEED) -> "Resamples":
        """Draw `count` resamples of the distinct subjects among `subject_id` [rows]."""
        subjects = np.unique(subject_id)
        rng, size = np.random.default_rng(seed), len(subjects)
        draws = np.zeros((count, size), dtype=np.uint16)
        block = _resamples_at_a_time(size)
        for first in range(0, count, block):
            rows = draws[first : first + block]
            columns = rng.integers(0, size, rows.shape) + size * np.arange(len(rows))[:, None]
            rows[:] = np.bincount(columns.ravel(), minlength=rows.size).reshape(rows.shape)
        return cls(subjects, draws)

    def apply(self, metric: Callable[[np.ndarray], np.ndarray], subject_id: np.ndarray) -> np.ndarray:
        """Return metric(weights [block, rows]) -> [block] for every resample, computed in blocks."""
        columns = np.searchsorted(self.subjects, subject_id)
        block = _resamples_at_a_time(len(columns))
        starts = range(0, len(self.draws), block)
        return np.concatenate([metric(self.draws[i : i + block][:, columns].astype(float)) for i in starts])


def _resamples_at_a_time(columns: int) -> int:
    return max(_LEAST_RESAMPLES, _BLOCK_CELLS // max(1, columns))


def weighted_auroc(truth: np.ndarray, score: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return AUROC [resamples] under weights [resamples, rows]; NaN where a resample lacks a class."""
    return auroc_of(*weight_at_or_above(truth, score, weights))


def auroc_of(true_weight: np.ndarray, false_weight: np.ndarray) -> np.ndarray:
    """Return AUROC [resamples] from the weights that `weight_at_or_above` returns."""
    width = np.diff(false_weight, axis=1, prepend=0.0)
    height = true_weight - np.diff(true_weight, axis=1, prepend=0.0) / 2  # ties count one half
    with np.errstate(invalid="ignore", divide="ignore"):
        area: np.ndarray = (width * height).sum(axis=1) / (true_weight[:, -1] * false_weight[:, -1])
    return area


def weighted_average_precision(truth: np.ndarray, score: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return AP [resamples] without interpolation; NaN where a resample lacks one of the two classes."""
    return average_precision_of(*weight_at_or_above(truth, score, weights))


def average_precision_of(true_weight: np.ndarray, false_weight: np.ndarray) -> np.ndarray:
    """Return AP [resamples] from the weights that `weight_at_or_above` returns."""
    alarm_weight = true_weight + false_weight
    precision = np.divide(true_weight, alarm_weight, out=np.zeros_like(alarm_weight), where=alarm_weight > 0)
    recall_steps = np.diff(true_weight, axis=1, prepend=0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = (recall_steps * precision).sum(axis=1) / true_weight[:, -1]
    return np.where(false_weight[:, -1] > 0, value, np.nan)


def weight_at_or_above(
    truth: np.ndarray, score: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the weight of positives and of negatives at or above each distinct score, highest first."""
    order = np.argsort(-score, kind="stable")
    last_of_ties = np.append(np.flatnonzero(np.diff(score[order])), len(score) - 1)
    sorted_weights = weights[:, order]
    positive = np.cumsum(sorted_weights * truth[order], axis=1)[:, last_of_ties]
    return positive, np.cumsum(sorted_weights, axis=1)[:, last_of_ties] - positive
