"""Thresholds of a yes-or-no outcome's probability, chosen on validation patients or given by the user."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nest_model.data.predictions import Predictions

SENSITIVITIES = (0.8, 0.9)
ALERT_RATES = (0.1, 0.05, 0.2)
ERRORS = (0.05, 0.1, 0.2)
"""Stated errors: the largest shares of an outcome whose set of plausible outcomes may miss it."""
BY_USER = "set in the cohort file"


class Threshold(NamedTuple):
    """The least probability that raises an alert, and the rule by which it was chosen."""

    rule: str
    value: float


def thresholds_from(validation: Predictions, by_user: Sequence[float] = ()) -> list[Threshold]:
    """Return the thresholds of a bool task, the most wanted first: the user's, or else chosen on validation rows.

    The rules are 80 % and 90 % sensitivity, and alerts on 10, 5 and 20 % of the predictions. A sensitivity is that of
    new patients, as `plausible_range` promises it. Without a user's thresholds the list is empty where under eleven
    validation patients have the outcome, or do not.
    """
    if by_user:
        return [Threshold(BY_USER, value) for value in by_user]
    if not len(validation.scorable()):
        return []
    thresholds = [
        Threshold(f"{_percent(share)} sensitivity", plausible_range(validation, 1 - share)[0])
        for share in SENSITIVITIES
    ]
    probability = validation.probability[:, 0]
    return thresholds + [
        Threshold(f"alerts on {_percent(share)}", _least_of_top(probability, share)) for share in ALERT_RATES
    ]


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", "\u00a0%")  # not to be broken over two lines


def _least_of_top(probability: np.ndarray, share: float) -> float:
    """Return the probability that this share of the rows reach, rounded down to four digits."""
    from_the_top = np.sort(probability)[::-1]
    return _rounded_down(float(from_the_top[max(0, int(np.ceil(share * len(from_the_top) - 1e-9)) - 1)]))


def plausible_range(validation: Predictions, error: float) -> tuple[float, float]:
    """Return the least probability at which the outcome is plausible, and the largest at which its absence is.

    At most the stated error of new patients with the outcome lie below the first, and of those without it above the
    second. Of n validation rows it is the ⌊error · (n + 1)⌋-th from its end; 0, or 1, with too few rows for one. Both
    are rounded outwards to four digits, so that neither is the probability of one patient.
    """
    has_outcome, probability = validation.truth[:, 0], validation.probability[:, 0]
    least = _from_below(probability[has_outcome], error, none=0.0)
    most = -_from_below(-probability[~has_outcome], error, none=-1.0)
    return _rounded_down(least), -_rounded_down(-most)


def _from_below(values: np.ndarray, error: float, *, none: float) -> float:
    place = int(np.floor(error * (len(values) + 1) + 1e-9))
    return float(np.sort(values)[place - 1]) if place else none


def _rounded_down(value: float) -> float:
    if not value:
        return 0.0
    step = 10.0 ** (np.floor(np.log10(abs(value))) - 3)
    return float(f"{np.floor(value / step + 1e-9) * step:.4g}")
