import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from nest_model.evaluation.bootstrap import Resamples
from nest_model.evaluation.cuts import cuts_of
from nest_model.evaluation.operating_points import measure, operating_points
from nest_model.evaluation.thresholds import BY_USER, Threshold, thresholds_from
from schemas.suppress import disclosing
from tests.support.factories.predictions import predictions_of


def drawn(rows: int, seed: int = 0):
    """Return predictions with ties, for as many patients as rows."""
    rng = np.random.default_rng(seed)
    probability = rng.integers(0, 200, rows) / 200
    return predictions_of(rng.random(rows) < probability, probability)


def test_measures_equal_a_case_worked_by_hand():
    """Four alerts, three of them right; of five ill two are missed, of five well four get no alert."""
    truth = np.array([1, 1, 1, 0, 1, 1, 0, 0, 0, 0], dtype=bool)
    alert = np.array([1, 1, 1, 1, 0, 0, 0, 0, 0, 0], dtype=bool)
    subjects = np.arange(10)

    scores = measure(truth, alert, subjects, Resamples.of(subjects))

    values = {name: score.value for name, score in scores.items()}
    assert values == pytest.approx(
        {"sensitivity": 3 / 5, "specificity": 4 / 5, "ppv": 3 / 4, "npv": 4 / 6, "alerts_per_100": 40}
    )


def test_measures_of_a_resample_equal_scikit_learn_on_its_rows():
    test = drawn(60)
    truth, alert = test.truth[:, 0], test.probability[:, 0] >= 0.6
    subjects = np.arange(60) // 2  # two rows of each patient
    resamples = Resamples.of(subjects, count=20)

    scores = measure(truth, alert, subjects, resamples)

    for place, draw in enumerate(resamples.draws):
        rows = np.repeat(np.arange(60), draw[subjects])
        quiet, false, missed_outcomes, true = confusion_matrix(truth[rows], alert[rows]).ravel()
        assert scores["sensitivity"].samples[place] == pytest.approx(true / (true + missed_outcomes))
        assert scores["npv"].samples[place] == pytest.approx(quiet / (quiet + missed_outcomes))
        assert scores["alerts_per_100"].samples[place] == pytest.approx(100 * (true + false) / len(rows))


@pytest.mark.parametrize("share", [0.8, 0.9])
def test_threshold_is_the_highest_that_promises_its_sensitivity_of_new_patients(share):
    validation = drawn(400)
    threshold = next(
        one.value
        for one in thresholds_from(validation)
        if one.rule == f"{share:.0%}".replace("%", "\u00a0% sensitivity")
    )
    ill = validation.probability[validation.truth[:, 0], 0]
    # of one more than the validation patients with the outcome, as if the new one were missed
    assert np.sum(ill >= threshold) + 1 >= share * (len(ill) + 1)
    assert np.sum(ill > threshold) < share * (len(ill) + 1), "a step of the probabilities higher it is missed"


def test_threshold_of_alerts_covers_its_share_of_validation_rows():
    validation = predictions_of(np.arange(100) % 2 == 0, (np.arange(100) + 1) / 101)
    values = {one.rule: one.value for one in thresholds_from(validation)}
    for share in (5, 10, 20):
        assert np.sum(validation.probability >= values[f"alerts on {share}\u00a0%"]) == share


def test_thresholds_of_the_user_are_measured_as_they_are():
    test = drawn(600)
    thresholds = thresholds_from(drawn(0), (0.3, 0.7))
    cuts = cuts_of(drawn(0), test, thresholds)
    points = operating_points(test, thresholds, Resamples.of(test.subject_id), cuts)
    assert [(point["threshold"], point["rule"]) for point in points] == [(0.7, BY_USER), (0.3, BY_USER)]
    truth, probability = test.truth[:, 0], test.probability[:, 0]
    assert points[0]["ppv"]["value"] == round(float(truth[probability >= 0.7].mean()), 6)


def test_no_threshold_is_chosen_on_ten_validation_patients_with_the_outcome():
    assert thresholds_from(predictions_of(np.arange(100) < 10, np.linspace(0, 1, 100))) == []
    assert thresholds_from(predictions_of(np.arange(100) < 11, np.linspace(0, 1, 100))) != []


def test_every_threshold_is_shown_for_synthetic_patients():
    test, thresholds = drawn(600), [Threshold("", value) for value in (0.99, 0.5, 0.01)]

    def values() -> list[float]:
        cuts = cuts_of(drawn(0), test, thresholds)
        points = operating_points(test, thresholds, Resamples.of(test.subject_id, count=2), cuts)
        return [point["threshold"] for point in points]

    with disclosing(is_synthetic=True):
        assert values() == [0.99, 0.5, 0.01]
    assert values() == [0.5]
