"""The only probabilities at which a page may count the test rows of a yes-or-no outcome.

Whatever a page says of the rows above a probability (sensitivity, alerts, coverage, the points of a curve, the bins of
the reliability) is a count, because the number of rows is shown, and two counts can be subtracted. So all of it stands
at common cuts, between which, above the highest and below the lowest there is no patient or eleven, with the outcome
and without: every count that can be derived is a sum of such parts.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence

import numpy as np

from nest_model.data.predictions import Predictions, patients_of
from nest_model.evaluation.thresholds import ERRORS, Threshold, plausible_range
from schemas.suppress import is_small

DECILES = np.arange(1, 10) / 10
_CURVE = np.arange(1, 200) / 200
"""Shares of the rows, and of those with the outcome, at which curves have a point if they may."""


class Cuts:
    """The cuts of one model's test rows; without any all rows are one part."""

    def __init__(self, test: Predictions) -> None:
        self._truth, self._probability, self._subject_id = (
            test.truth[:, 0],
            test.probability[:, 0],
            test.subject_id,
        )
        self._values: list[float] = []
        self.part = np.zeros(len(test), dtype=int)  # of each row, the lowest probabilities first

    def add(self, *values: float) -> bool:
        """Add cuts, all of them or none, and return whether they are in: a part goes from its cut on to the next."""
        before = self._values.copy(), self.part
        for value in values:
            if value in self._values:
                continue
            place = bisect_left(self._values, value)
            rows = self.part == place
            is_above = self._probability >= value
            if self._is_small(rows & is_above) or self._is_small(rows & ~is_above):
                self._values, self.part = before
                return False
            insort(self._values, value)
            self.part = self.part + is_above
        return True

    def has(self, *values: float) -> bool:
        """Return whether these are among the cuts."""
        return set(values) <= set(self._values)

    def mean_in_part(self, values: np.ndarray) -> np.ndarray:
        """Return for each row the mean of the values [rows] in its part."""
        sums, rows = np.bincount(self.part, weights=values), np.bincount(self.part)
        means: np.ndarray = sums[self.part] / rows[self.part]
        return means

    def _is_small(self, rows: np.ndarray) -> bool:
        return any(map(is_small, patients_of(self._truth[rows], self._subject_id[rows])))


def cuts_of(validation: Predictions, test: Predictions, thresholds: Sequence[Threshold]) -> Cuts:
    """Return the cuts of a model's test rows, the most wanted first: of two that are too close the first is there.

    These are the thresholds of the operating points, the ranges of act or defer, the deciles of the reliability, and
    the points of the curves.
    """
    cuts = Cuts(test)
    for threshold in thresholds:
        cuts.add(threshold.value)
    for error in ERRORS if len(validation.scorable()) else ():
        cuts.add(*range_cuts(validation, error))
    if len(test.scorable()):
        _add_points(cuts, test)
    return cuts


def range_cuts(validation: Predictions, error: float) -> tuple[float, float]:
    """Return the cuts at which the outcome becomes plausible, and its absence no longer is."""
    least, most = plausible_range(validation, error)
    return least, float(np.nextafter(most, np.inf))


def _add_points(cuts: Cuts, test: Predictions) -> None:
    has_outcome, probability = test.truth[:, 0], test.probability[:, 0]
    points = [*np.quantile(probability, DECILES), *np.quantile(probability, _CURVE)]
    points += [*np.quantile(probability[has_outcome], _CURVE)]
    for point in points:
        cuts.add(float(np.nextafter(point, np.inf)))
