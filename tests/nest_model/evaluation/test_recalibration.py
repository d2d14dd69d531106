from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import brier_score_loss, log_loss

from nest_model.data.predictions import Predictions
from nest_model.evaluation import recalibration
from nest_model.evaluation.recalibration import fit_isotonic, fit_temperature, recalibrate
from tests.support.factories import predictions as made_up

TASK = made_up.task("mimic_mortality", "bool", ("false", "true"))


def predictions_with(
    log_odds: np.ndarray, probability: np.ndarray, *, seed: int, rows_of_each: int = 1
) -> Predictions:
    """Return rows with outcomes drawn from `log_odds` and predicted probability `probability`."""
    rows = len(log_odds)
    truth = np.random.default_rng(seed).random(rows) < expit(log_odds)
    return Predictions(
        task=TASK,
        classes=("true",),
        model="made_up",
        subject_id=np.arange(rows) // rows_of_each,
        encounter_id=np.arange(rows),
        split=np.full(rows, "val", dtype=object),
        truth=truth[:, None],
        probability=probability[:, None],
    )


@pytest.fixture(scope="module")
def log_odds() -> np.ndarray:
    return np.random.default_rng(0).normal(-1, 1.5, size=4_000)


def test_temperature_undoes_a_known_overconfidence(log_odds):
    probability = predictions_with(log_odds, expit(3 * log_odds), seed=1)
    recalibrated_probability = fit_temperature(probability.truth[:, 0], probability.probability[:, 0])(
        expit(3 * np.array([1.0, -2.0]))
    )

    assert recalibrated_probability == pytest.approx(expit(np.array([1.0, -2.0])), abs=0.03)


def test_probabilities_of_0_and_1_are_mapped_to_numbers_between():
    rows = np.array([0.0, 1.0, 0.5, 0.2])
    recalibrated_probability = fit_temperature(np.array([False, False, True, True]), rows)(rows)

    assert ((recalibrated_probability > 0) & (recalibrated_probability < 1)).all()


def test_isotonic_keeps_the_order_and_stays_within_0_and_1(log_odds):
    predictions = predictions_with(log_odds, expit(log_odds) ** 3, seed=2)
    recalibrated_probability = fit_isotonic(predictions.truth[:, 0], predictions.probability[:, 0])(
        np.linspace(-0.1, 1.1, 50)
    )

    assert (np.diff(recalibrated_probability) >= 0).all()
    assert recalibrated_probability.min() >= 0
    assert recalibrated_probability.max() <= 1


def test_temperature_is_chosen_for_overconfidence_and_isotonic_for_shift(log_odds):
    overconfident = recalibrate(predictions_with(log_odds, expit(3 * log_odds), seed=3))
    with_shift = recalibrate(predictions_with(log_odds, expit(log_odds + 2), seed=3))

    assert overconfident.method == "temperature"
    assert with_shift.method == "isotonic"
    assert with_shift.brier["isotonic"] < with_shift.brier["temperature"]


def test_recalibration_improves_scores_of_unseen_patients(log_odds):
    probability = expit(log_odds + 2)
    test = predictions_with(log_odds, probability, seed=11)
    recalibrated_probability = recalibrate(predictions_with(log_odds, probability, seed=10)).apply(test)

    assert recalibrated_probability.shape == (len(test), 1)
    for score in (brier_score_loss, log_loss):
        assert score(test.truth[:, 0], recalibrated_probability[:, 0]) < 0.9 * score(
            test.truth[:, 0], test.probability[:, 0]
        )


def test_cross_validation_folds_keep_a_patient_together():
    """Outcome and probability are constant per patient: steps fitted on the same patient would look perfect."""
    rng = np.random.default_rng(4)
    of_patient = np.repeat(rng.random(200), 10)
    rows = predictions_with(np.zeros(2_000), of_patient, seed=5, rows_of_each=10)
    rows = replace(rows, truth=np.repeat(rng.random(200) < 0.5, 10)[:, None])

    assert recalibrate(rows).brier["isotonic"] > 0.2


@pytest.mark.parametrize("side", [True, False])
def test_recalibration_needs_eleven_patients_of_either_outcome(side):
    truth = np.full(300, not side)
    truth[:100] = side  # many rows of ten patients
    rows = predictions_with(np.zeros(300), np.linspace(0.1, 0.9, 300), seed=6, rows_of_each=10)

    assert recalibrate(replace(rows, truth=truth[:, None])) is None
    truth[100] = side
    assert recalibrate(replace(rows, truth=truth[:, None])) is not None


def test_both_maps_are_tried(log_odds):
    assert (
        recalibrate(predictions_with(log_odds, expit(log_odds), seed=7)).brier.keys()
        == recalibration._FITS.keys()
    )
