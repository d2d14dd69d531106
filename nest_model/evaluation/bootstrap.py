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


@dataclass(frozen=True)
class WeightedRanking:
    """The weights of positives and negatives at the distinct scores that a positive has, highest first.

    Both AUROC and AP are sums over these scores alone, so that the other rows count but need no column of their own.
    """

    true_weight: np.ndarray  # [resamples, scores] of the positives with this score or a higher one
    false_weight: np.ndarray  # [resamples, scores] likewise of the negatives
    tied_weight: np.ndarray  # [resamples, scores] of the negatives with just this score
    false_total: np.ndarray  # [resamples] of all negatives

    @classmethod
    def of(cls, truth: np.ndarray, score: np.ndarray, weights: np.ndarray) -> "WeightedRanking":
        """Rank rows with `truth` and `score` [rows] under `weights` [resamples, rows]."""
        order = np.argsort(-score, kind="stable")
        ends = np.append(np.flatnonzero(np.diff(score[order])), len(score) - 1) + 1  # of each distinct score
        starts = np.append(0, ends[:-1])
        positives_before = np.append(0, np.cumsum(truth[order] > 0))
        has_positive = positives_before[ends] > positives_before[starts]
        starts, ends = starts[has_positive], ends[has_positive]
        before = np.zeros((len(weights), len(score) + 1))  # of the rows before each place
        np.cumsum(weights[:, order], axis=1, out=before[:, 1:])
        true_before = np.zeros((len(weights), positives_before[-1] + 1))
        np.cumsum(weights[:, order[truth[order] > 0]], axis=1, out=true_before[:, 1:])
        true_weight = true_before[:, positives_before[ends]]
        false_weight = before[:, ends] - true_weight
        return cls(
            true_weight,
            false_weight,
            tied_weight=false_weight - before[:, starts] + true_before[:, positives_before[starts]],
            false_total=before[:, -1] - true_before[:, -1],
        )

    def auroc(self) -> np.ndarray:
        """Return AUROC [resamples], ties counted one half; NaN where a resample lacks one of the two classes."""
        lower_weight = self.false_total[:, None] - self.false_weight + self.tied_weight / 2
        with np.errstate(invalid="ignore", divide="ignore"):
            area: np.ndarray = self._mean_over_positives(lower_weight) / self.false_total
        return area

    def average_precision(self) -> np.ndarray:
        """Return AP [resamples] without interpolation; NaN where a resample lacks one of the two classes."""
        alarm_weight = self.true_weight + self.false_weight
        precision = np.divide(
            self.true_weight, alarm_weight, out=np.zeros_like(alarm_weight), where=alarm_weight > 0
        )
        return np.where(self.false_total > 0, self._mean_over_positives(precision), np.nan)

    def _mean_over_positives(self, values: np.ndarray) -> np.ndarray:
        """Return the mean of `values` [resamples, scores] over the positives' weights; NaN where there are none."""
        with np.errstate(invalid="ignore", divide="ignore"):
            steps = np.diff(self.true_weight, axis=1, prepend=0.0)
            mean: np.ndarray = (steps * values).sum(axis=1) / steps.sum(axis=1)
        return mean


def weighted_auroc(truth: np.ndarray, score: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return AUROC [resamples] under weights [resamples, rows]; NaN where a resample lacks one of the two classes."""
    return WeightedRanking.of(truth, score, weights).auroc()


def weighted_average_precision(truth: np.ndarray, score: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return AP [resamples] under weights [resamples, rows]; NaN where a resample lacks one of the two classes."""
    return WeightedRanking.of(truth, score, weights).average_precision()
