"""The calibration slope: scikit-learn's unpenalized logistic regression on the log-odds, resample by resample."""

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from nest_model.evaluation.bootstrap import Resamples
from nest_model.evaluation.calibration import slope
from nest_model.evaluation.metrics import score
from tests.support.factories.predictions import predictions_of

ROWS = 400


def made(spread: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return outcomes, and predicted probabilities whose log-odds are `spread` times the true ones."""
    rng = np.random.default_rng(seed)
    log_odds = rng.normal(-1, 1.5, ROWS)
    return rng.random(ROWS) < expit(log_odds), expit(spread * log_odds)


def nearly_separated() -> tuple[np.ndarray, np.ndarray]:
    """Return outcomes and probabilities of an AUROC near 1, with some overlap."""
    rng = np.random.default_rng(2)
    truth = np.arange(ROWS) % 8 == 0
    return truth, expit(rng.normal(np.where(truth, 2.0, -2.0), 1.1))


@pytest.mark.parametrize("case", [made(0.3), made(1.0), made(4.0), nearly_separated()])
def test_slope_of_every_resample_is_that_of_a_logistic_regression(case):
    truth, probability = case
    weights = np.random.default_rng(1).poisson(1, (20, ROWS)).astype(float)
    rows = logit(probability.clip(1e-6, 1 - 1e-6))[:, None]
    regressions = [
        LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000, solver="newton-cholesky").fit(
            rows, truth, sample_weight=weight
        )
        for weight in weights
    ]
    expected = [regression.coef_[0, 0] for regression in regressions]
    assert slope(truth, probability, weights) == pytest.approx(expected, abs=1e-5)


def test_true_risks_have_slope_one_and_their_squared_odds_one_half():
    truths, risks = zip(*(made(1.0, seed) for seed in range(50)), strict=True)
    truth, risk = np.concatenate(truths), np.concatenate(risks)
    ones = np.ones((1, len(truth)))
    assert slope(truth, risk, ones)[0] == pytest.approx(1, abs=0.05)
    too_extreme = expit(2 * logit(risk))
    assert slope(truth, too_extreme, ones)[0] == pytest.approx(slope(truth, risk, ones)[0] / 2, abs=1e-4)


@pytest.mark.parametrize(
    ("truth", "probability"),
    [
        (np.arange(ROWS) % 3 == 0, np.full(ROWS, 0.3)),  # all the same
        (np.arange(ROWS) >= 200, np.linspace(0.01, 0.99, ROWS)),  # separated
        (np.zeros(ROWS, dtype=bool), np.linspace(0.01, 0.99, ROWS)),  # one outcome alone
    ],
)
def test_without_a_slope_there_is_no_number_and_no_warning(truth, probability, recwarn):
    assert np.isnan(slope(truth, probability, np.ones((3, ROWS)))).all()
    assert not recwarn.list


def test_resample_without_an_outcome_has_no_slope_and_the_others_keep_theirs():
    truth, probability = made(1.0)
    slopes = slope(truth, probability, np.stack([np.ones(ROWS), (~truth).astype(float)]))
    assert np.isfinite(slopes[0])
    assert np.isnan(slopes[1])


def test_probabilities_of_zero_and_one_are_clipped():
    truth, probability = made(1.0)
    probability[:2] = [0.0, 1.0]
    assert np.isfinite(slope(truth, probability, np.ones((1, ROWS)))).all()


def test_slope_has_no_interval_where_many_resamples_are_separated():
    """Their slopes are infinite: an interval of the others would end too low."""
    truth = np.arange(60) % 2 == 0
    probability = expit(np.where(truth, 2.0, -2.0) + np.linspace(-0.5, 0.5, 60))
    probability[:2] = [0.3, 0.7]  # the only overlap
    predictions = predictions_of(truth, probability)
    value = score(predictions, Resamples.of(predictions.subject_id))["calibration_slope"].json()
    assert value["value"] > 1
    assert value["low"] is None
    assert "separate" in value["note"]


def test_score_of_a_yes_or_no_task_has_the_slope_with_its_interval():
    truth, probability = made(2.0)
    predictions = predictions_of(truth, probability)
    value = score(predictions, Resamples.of(predictions.subject_id))["calibration_slope"].json()
    assert value["low"] < value["value"] < value["high"] < 1
    assert value["value"] == pytest.approx(0.5, abs=0.15)
    assert value["low"] < 0.5 < value["high"]
