import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nest_model.data.numbers import HUBER_DELTA, MOST_DEVIATIONS, from_scale, to_scale
from nest_model.data.predictions import Predictions
from nest_model.evaluation import number_metrics
from nest_model.evaluation.bootstrap import Resamples
from nest_model.evaluation.metrics import NUMBER_METRICS, score, summary
from nest_model.evaluation.validation_score import mean_huber_loss
from schemas.tables.labels import NumberScale
from tests.support.examples import examples
from tests.support.factories.predictions import task

FEW = st.lists(st.integers(0, 4), min_size=3, max_size=12)


def predictions(truth, predicted, subject_id=None) -> Predictions:
    rows = len(truth)
    scale = NumberScale(is_log=False, mean=0.0, deviation=1.0)
    of_days = task("mimic_days", "number", ()).model_copy(update={"unit": "days", "scale": scale})
    return Predictions(
        task=of_days,
        classes=("value",),
        model="m",
        subject_id=np.arange(rows) if subject_id is None else np.asarray(subject_id),
        encounter_id=np.arange(rows),
        split=np.full(rows, "test", dtype=object),
        truth=np.asarray(truth, dtype=float)[:, None],
        probability=np.asarray(predicted, dtype=float)[:, None],
    )


@given(FEW, st.integers(0, 10**6))
@settings(max_examples=examples(60), deadline=None)
def test_weighted_metrics_are_those_of_repeated_rows(numbers, seed):
    rng = np.random.default_rng(seed)
    truth, predicted = np.array(numbers, float), rng.integers(0, 4, len(numbers)).astype(float)
    weights = rng.integers(0, 3, (5, len(numbers)))
    for name, metric in number_metrics.WEIGHTED.items():
        for value, row in zip(metric(truth, predicted, weights.astype(float)), weights, strict=True):
            resample = [np.repeat(values, row) for values in (truth, predicted)]
            expected = number_metrics.point(name, *resample) if row.any() else None
            assert value == pytest.approx(expected) if expected is not None else np.isnan(value)


def test_scores_of_a_number_by_hand():
    """Errors 1, 0, 2 and 1 of 2, 4, 6 and 8: MAE 1; squares 6 of 20 around the mean: R² 0.7; ranks 1 2 4 3."""
    truth, predicted = np.tile([2.0, 4, 6, 8], 5), np.tile([3.0, 4, 8, 7], 5)
    scores = score(predictions(truth, predicted), Resamples.of(np.arange(20), count=200))
    values = {name: scores[name].value for name in NUMBER_METRICS}
    assert values == pytest.approx({"mae": 1.0, "r2": 0.7, "spearman": 0.8})
    assert all(low < values[name] < high for name in values for low, high in [scores[name].interval()])


def test_a_number_of_ten_patients_has_no_score_and_no_curve():
    few = predictions(np.arange(40.0), np.arange(40.0), np.arange(40) % 10)
    content = summary(few, score(few, Resamples.of(few.subject_id, count=10)))
    assert {content[name]["value"] for name in NUMBER_METRICS} == {None}
    assert content["patients"] == "< 11"
    assert content["reliability"] is None


def test_a_guess_that_is_the_same_for_everyone_has_no_rank_correlation():
    scores = score(predictions(np.arange(30.0), np.full(30, 14.5)), Resamples.of(np.arange(30), count=10))
    assert scores["spearman"].value is None
    assert "the same" in scores["spearman"].note
    assert scores["r2"].value == 0


def test_every_bin_of_the_calibration_has_eleven_patients():
    rng = np.random.default_rng(0)
    predicted = np.concatenate([np.zeros(100), rng.random(60)])
    subject_id = np.concatenate([np.arange(100), 100 + np.arange(60) % 30])
    points = number_metrics.calibration(predicted + 1, predicted, subject_id)
    assert np.diff(points["expected"]).min() > 0
    np.testing.assert_allclose(points["observed"], np.array(points["expected"]) + 1, atol=2e-4)
    assert number_metrics.calibration(predicted[:21], predicted[:21], subject_id[:21]) is None


@pytest.mark.parametrize("is_log", [False, True])
def test_a_number_survives_its_scale_and_back(is_log):
    numbers = np.array([0.0, 0.5, 3.25, 40.0])
    scale = NumberScale(is_log=is_log, mean=1.2, deviation=0.7)
    np.testing.assert_allclose(from_scale(to_scale(numbers, scale), scale)[:3], numbers[:3], atol=1e-12)
    farthest = from_scale(np.array([-1e9, 1e9]), scale)
    assert np.isfinite(farthest).all()
    assert farthest[0] == (0 if is_log else 1.2 - MOST_DEVIATIONS * 0.7)


def test_huber_loss_is_squared_up_to_delta_and_linear_beyond():
    assert mean_huber_loss(np.array([0.0]), np.array([0.5]), HUBER_DELTA) == 0.125
    assert mean_huber_loss(np.array([0.0]), np.array([3.0]), HUBER_DELTA) == 2.5
