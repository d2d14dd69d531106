"""What a model does at a threshold: sensitivity, specificity, predictive values and the number of alerts.

A threshold is chosen on validation patients, or given by the user; test patients only measure it. It applies to the
probability as predicted, without recalibration, so that it also applies to what `python -m nest_model predict` writes.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nest_model.data.predictions import Predictions, patients_of
from nest_model.evaluation.bootstrap import Resamples
from nest_model.evaluation.metrics import Score, is_curve_disclosable
from schemas.suppress import is_small

SENSITIVITIES = (0.8, 0.9)
ALERT_RATES = (0.1, 0.05, 0.2)
BY_USER = "set in the cohort file"

MEASURES = {
    "sensitivity": "Sensitivity",
    "specificity": "Specificity",
    "ppv": "PPV",
    "npv": "NPV",
    "alerts_per_100": "Alerts per 100 predictions",
}


class Threshold(NamedTuple):
    """The least probability that raises an alert, and the rule by which it was chosen."""

    rule: str
    value: float


def thresholds_from(validation: Predictions, by_user: Sequence[float] = ()) -> list[Threshold]:
    """Return the thresholds of a bool task, the most wanted first: the user's, or else chosen on validation rows.

    The rules are 80 % and 90 % sensitivity, and alerts on 10, 5 and 20 % of the predictions. Without a user's
    thresholds the list is empty where under eleven validation patients have the outcome, or do not.
    """
    if by_user:
        return [Threshold(BY_USER, value) for value in by_user]
    truth, probability = validation.truth[:, 0], validation.probability[:, 0]
    if not is_curve_disclosable(truth, validation.subject_id):
        return []
    thresholds = [
        Threshold(f"{_percent(share)} sensitivity", _least_of_top(probability[truth], share))
        for share in SENSITIVITIES
    ]
    thresholds += [
        Threshold(f"alerts on {_percent(share)}", _least_of_top(probability, share)) for share in ALERT_RATES
    ]
    return thresholds


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", "\u00a0%")  # not to be broken over two lines


def _least_of_top(probability: np.ndarray, share: float) -> float:
    """Return the probability that this share of the rows reach, rounded down to four digits."""
    ordered = np.sort(probability)[::-1]
    value = float(ordered[max(0, int(np.ceil(share * len(ordered) - 1e-9)) - 1)])
    if value <= 0:
        return 0.0
    step = 10.0 ** (np.floor(np.log10(value)) - 3)
    return float(f"{np.floor(value / step * (1 + 1e-12)) * step:.4g}")


def operating_points(
    test: Predictions, thresholds: Sequence[Threshold], resamples: Resamples
) -> list[dict[str, Any]]:
    """Return the rule, the value and the five measures of each threshold on the test rows, as JSON.

    A threshold whose counts would disclose fewer than eleven patients is left out, see `disclosable`.
    """
    truth, probability = test.truth[:, 0], test.probability[:, 0]
    if not is_curve_disclosable(truth, test.subject_id):
        return []
    points = []
    for rule, value in disclosable(test, thresholds):
        scores = measure(truth, probability >= value, test.subject_id, resamples)
        points.append(
            {"rule": rule, "threshold": value, **{name: one.json() for name, one in scores.items()}}
        )
    return points


def measure(
    truth: np.ndarray, alert: np.ndarray, subject_id: np.ndarray, resamples: Resamples
) -> dict[str, Score]:
    """Return the five measures of bool alerts [rows], each with its values over resampled patients."""
    columns = np.stack([alert & truth, alert & ~truth, ~alert & truth, ~alert & ~truth], axis=1)

    def of(weights: np.ndarray) -> np.ndarray:
        true_alert, false_alert, missed, quiet = (weights @ columns.astype(float)).T
        rows = true_alert + false_alert + missed + quiet
        return np.stack(
            [
                _share(true_alert, true_alert + missed),
                _share(quiet, quiet + false_alert),
                _share(true_alert, true_alert + false_alert),
                _share(quiet, quiet + missed),
                100 * _share(true_alert + false_alert, rows),
            ],
            axis=1,
        )

    values = of(np.ones((1, len(truth))))[0]
    samples = resamples.apply(of, subject_id)
    return {
        name: Score(None if np.isnan(value) else float(value), samples[:, place])
        for place, (name, value) in enumerate(zip(MEASURES, values, strict=True))
    }


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Return part / whole; NaN where whole is 0, such as the PPV without an alert."""
    share: np.ndarray = np.divide(part, whole, out=np.full(np.shape(part), np.nan), where=whole > 0)
    return share


def disclosable(test: Predictions, thresholds: Sequence[Threshold]) -> list[Threshold]:
    """Return the thresholds, the highest first, between which no count of patients is 1 to 10.

    Sensitivity and specificity times the rows, which are shown, are counts; the counts of two thresholds can be
    subtracted. So between two thresholds, above the first and below the last there must be no patient or eleven, with
    the outcome and without, as in the bins of the reliability curve. Of two that are too close the first is shown.
    """
    shown = list[Threshold]()
    for threshold in thresholds:
        if not _has_small_gap(test, sorted(one.value for one in [*shown, threshold])):
            shown.append(threshold)
    return sorted(shown, key=lambda threshold: -threshold.value)


def _has_small_gap(test: Predictions, values: Sequence[float]) -> bool:
    """Return whether 1 to 10 patients, with the outcome or without, lie between two values or beyond them."""
    gap = np.searchsorted(values, test.probability[:, 0], side="right")
    return any(
        is_small(count)
        for place in range(len(values) + 1)
        for count in patients_of(test.truth[gap == place, 0], test.subject_id[gap == place])
    )
