import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from nest_model.data.predictions import Predictions
from nest_model.data.times import interval_targets, kaplan_meier, survival
from nest_model.evaluation import time_metrics
from nest_model.evaluation.bootstrap import Resamples
from nest_model.evaluation.hazards import (
    interval_rows,
    levelled_hazard_loss,
    mean_hazard_loss,
    pooled_logistic,
)
from nest_model.evaluation.metrics import TIME_METRICS, score, summary
from tests.support.examples import examples
from tests.support.factories.predictions import task

TIMES = (2.0, 5.0, 10.0)
SEEDS = st.integers(0, 10**6)


def drawn_rows(seed: int, rows: int):
    """Return days, event and risk with many ties."""
    rng = np.random.default_rng(seed)
    return (
        rng.integers(1, 8, rows).astype(float),
        rng.random(rows) < 0.6,
        rng.integers(0, 4, rows).astype(float),
    )


def naive_concordance(days, event, risk) -> float:
    agreements, pairs = 0.0, 0
    for i in range(len(days)):
        for j in range(len(days)):
            if event[i] and (days[i] < days[j] or (days[i] == days[j] and not event[j])):
                pairs += 1
                agreements += 1.0 if risk[i] > risk[j] else 0.5 if risk[i] == risk[j] else 0.0
    return agreements / pairs if pairs else np.nan


@given(SEEDS, st.integers(2, 14), st.integers(1, 4))
@settings(max_examples=examples(60), deadline=None)
def test_concordance_of_resamples_is_the_naive_one_of_repeated_rows(seed, rows, rows_at_a_time):
    days, event, risk = drawn_rows(seed, rows)
    weights = np.random.default_rng(seed).integers(0, 3, (4, rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time_metrics, "ROWS_AT_A_TIME", rows_at_a_time)
        values = time_metrics.concordance(days, event, risk, weights.astype(float))
    for value, row in zip(values, weights, strict=True):
        expected = naive_concordance(*(np.repeat(column, row) for column in (days, event, risk)))
        assert value == pytest.approx(expected, nan_ok=True)


def test_kaplan_meier_by_hand():
    """At risk 5, 4, 3, 2, 1; events on days 1, 2 and 4: 4/5, then 3/4 of it, then half of that."""
    days, event = np.array([1.0, 2, 3, 4, 5]), np.array([True, True, False, True, False])
    at = np.array([0.5, 1, 1.5, 2, 3.9, 4, 9])
    np.testing.assert_allclose(kaplan_meier(days, event, at), [1, 0.8, 0.8, 0.6, 0.6, 0.3, 0.3])


def naive_brier(days, event, probability, time) -> float:
    """Graf's score at one time, row by row, with the censoring curve of the same rows."""
    total = 0.0
    for day, has_event, alive in zip(days, event, probability, strict=True):
        if has_event and day <= time:
            share_in_follow_up = kaplan_meier(days, ~event, np.array([day - 1e-9]))[0]
            total += alive**2 / share_in_follow_up
        elif day > time:
            total += (1 - alive) ** 2 / kaplan_meier(days, ~event, np.array([time]))[0]
    return total / len(days)


@given(SEEDS)
@settings(max_examples=examples(30), deadline=None)
def test_integrated_brier_is_the_trapezoid_of_the_naive_scores(seed):
    days, event, _ = drawn_rows(seed, 40)
    probability = np.sort(np.random.default_rng(seed).random((40, 2)), axis=1)[:, ::-1]
    days[0] = 9.0  # somebody is followed beyond the last time
    at_times = [naive_brier(days, event, probability[:, k], time) for k, time in enumerate(TIMES[:2])]
    expected = (at_times[0] / 2 * 2 + (at_times[0] + at_times[1]) / 2 * 3) / 5
    assert time_metrics.brier_by_row(days, event, probability, TIMES[:2]).mean() == pytest.approx(expected)


def test_brier_without_censoring_is_the_mean_squared_error():
    days, event = np.array([1.0, 3, 4, 9]), np.ones(4, dtype=bool)
    row_errors = time_metrics.brier_by_row(days, event, np.full((4, 1), 0.25), (2.0,))
    np.testing.assert_allclose(row_errors, np.array([0.25, 0.75, 0.75, 0.75]) ** 2 / 2)


def test_interval_targets_are_observed_up_to_the_event_or_half_an_interval():
    days = np.array([2.0, 2.1, 12.0, 3.4, 3.5, 0.5, 30.0])
    event = np.array([True, True, True, False, False, False, False])
    assert interval_targets(days, event, TIMES).tolist() == [
        [1, -1, -1],
        [0, 1, -1],
        [0, 0, 0],
        [0, -1, -1],
        [0, 0, -1],
        [-1, -1, -1],
        [0, 0, 0],
    ]


def test_survival_multiplies_the_chances_of_no_event():
    hazards = np.array([[0.1, 0.5, 0.2]])
    np.testing.assert_allclose(survival(np.log(hazards / (1 - hazards))), [[0.9, 0.45, 0.36]])


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_pooled_logistic_is_that_of_scikit_learn_on_the_rows_of_intervals(form):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(120, 3))
    targets = interval_targets(rng.integers(1, 12, 120).astype(float), rng.random(120) < 0.7, TIMES)
    weights, intercepts = pooled_logistic(form(features), targets, 0.3)

    matrix, event, rows = interval_rows(sparse.csr_matrix(features.astype(np.float32)), targets)
    dense = matrix.toarray()
    one_hot = 1e3 * (dense[:, -1:] == [1, 2, 3])  # so large that its penalty is next to nothing
    model = LogisticRegression(C=0.3, fit_intercept=False, tol=1e-10, max_iter=10_000, solver="newton-cg")
    model.fit(np.hstack([dense[:, :3], one_hot]), event)
    np.testing.assert_allclose(weights, model.coef_[0, :3], atol=2e-3)
    np.testing.assert_allclose(intercepts, 1e3 * model.coef_[0, 3:], atol=2e-3)
    assert np.bincount(rows, minlength=120).tolist() == (targets >= 0).sum(axis=1).tolist()


def test_levelled_hazard_loss_forgives_a_level_and_nothing_else():
    rng = np.random.default_rng(1)
    targets = rng.integers(-1, 2, (40, 3)).astype(np.float32)
    logits = rng.normal(size=(40, 3))
    grid = [mean_hazard_loss(logits + x, targets) for x in np.linspace(-3, 3, 6001)]
    loss = levelled_hazard_loss(logits, targets)
    assert loss == pytest.approx(min(grid), abs=1e-6)
    assert levelled_hazard_loss(logits + 5, targets) == pytest.approx(loss)
    assert levelled_hazard_loss(3 * logits, targets) > loss + 0.1
    assert loss < mean_hazard_loss(logits + 1, targets)


def test_levelled_hazard_loss_without_an_event_is_the_plain_loss():
    targets = np.zeros((2, 2), np.float32)
    assert levelled_hazard_loss(np.zeros((2, 2)), targets) == pytest.approx(2 * np.log(2))


def test_mean_hazard_loss_by_hand():
    """Hazards of one half: each observed interval costs log 2."""
    targets = np.array([[0.0, 1, -1], [0, 0, 0]])
    assert mean_hazard_loss(np.zeros((2, 3)), targets) == pytest.approx(5 * np.log(2) / 2)


def predictions(days, event, probability, subject_id=None) -> Predictions:
    rows = len(days)
    to_death = task("mimic_death", "time", ()).model_copy(update={"times_days": TIMES})
    return Predictions(
        task=to_death,
        classes=("2 days", "5 days", "10 days"),
        model="m",
        subject_id=np.arange(rows) if subject_id is None else subject_id,
        encounter_id=np.arange(rows),
        split=np.full(rows, "test", dtype=object),
        truth=np.stack([days, np.asarray(event, float)], axis=1),
        probability=probability,
    )


def test_scores_of_a_time_leave_out_times_that_few_are_followed_beyond():
    rng = np.random.default_rng(0)
    days = np.concatenate([rng.uniform(0.1, 6, 60), np.full(10, 20.0)])
    event = np.arange(70) < 40
    shortness = 1 / (1 + days[:, None] / np.array(TIMES))
    rows = predictions(days, event, 1 - shortness)
    scores = score(rows, Resamples.of(rows.subject_id, count=50))
    content = summary(rows, scores)
    assert scores["concordance"].value == 1
    assert 0 < scores["integrated_brier"].value < 0.25
    assert scores["integrated_brier"].interval() is not None
    assert content["reliability"]["days"] == [2.0, 5.0]
    assert content["positives"] == 40


def test_a_time_with_ten_patients_with_the_event_has_no_score():
    rows = predictions(np.full(60, 3.0), np.arange(60) < 10, np.full((60, 3), 0.5))
    content = summary(rows, score(rows, Resamples.of(rows.subject_id, count=10)))
    assert {content[name]["value"] for name in TIME_METRICS} == {None}
    assert content["positives"] == "< 11"
    assert content["reliability"] is None
