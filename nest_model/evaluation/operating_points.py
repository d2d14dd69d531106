"""What a model does at a threshold: sensitivity, specificity, predictive values and the number of alerts.

A threshold is chosen on validation patients, or given by the user; test patients only measure it. It applies to the
probability as predicted, without recalibration, so that it also applies to what `python -m nest_model predict` writes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nest_model.data.predictions import Predictions
from nest_model.evaluation.bootstrap import Resamples
from nest_model.evaluation.cuts import Cuts
from nest_model.evaluation.metrics import Score, is_curve_disclosable
from nest_model.evaluation.thresholds import Threshold

MEASURES = {
    "sensitivity": "Sensitivity",
    "specificity": "Specificity",
    "ppv": "PPV",
    "npv": "NPV",
    "alerts_per_100": "Alerts per 100 predictions",
}


def operating_points(
    test: Predictions, thresholds: Sequence[Threshold], resamples: Resamples, cuts: Cuts
) -> list[dict[str, Any]]:
    """Return the rule, the value and the five measures of each threshold on the test rows, as JSON.

    A threshold that is none of the cuts is left out; the others are in order, the highest first.
    """
    truth, probability = test.truth[:, 0], test.probability[:, 0]
    if not is_curve_disclosable(truth, test.subject_id):
        return []
    points = []
    for rule, value in sorted(thresholds, key=lambda threshold: -threshold.value):
        if cuts.has(value):
            scores = measure(truth, probability >= value, test.subject_id, resamples)
            measures = {name: one.json() for name, one in scores.items()}
            points.append({"rule": rule, "threshold": value, **measures})
    return points


def measure(
    truth: np.ndarray, alert: np.ndarray, subject_id: np.ndarray, resamples: Resamples
) -> dict[str, Score]:
    """Return the five measures of bool alerts [rows], each with its values over resampled patients."""
    columns = np.stack([alert & truth, alert & ~truth, ~alert & truth, ~alert & ~truth], axis=1)

    def of(weights: np.ndarray) -> np.ndarray:
        true_alert, false_alert, missed_outcomes, quiet = (weights @ columns.astype(float)).T
        rows = true_alert + false_alert + missed_outcomes + quiet
        return np.stack(
            [
                _share(true_alert, true_alert + missed_outcomes),
                _share(quiet, quiet + false_alert),
                _share(true_alert, true_alert + false_alert),
                _share(quiet, quiet + missed_outcomes),
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
