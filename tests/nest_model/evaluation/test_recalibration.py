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


def drawn(log_odds: np.ndarray, told: np.ndarray, *, seed: int, rows_of_each: int = 1) -> Predictions:
    """Return rows whose outcome is drawn by `log_odds` and whose probability is what `told` says."""
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
        probability=told[:, None],
    )


@pytest.fixture(scope="module")
def log_odds() -> np.ndarray:
    return np.random.default_rng(0).normal(-1, 1.5, size=4_000)


def test_a_model_too_sure_of_itself_is_cooled_by_the_factor_it_was_heated_by(log_odds):
    told = drawn(log_odds, expit(3 * log_odds), seed=1)
    mapped = fit_temperature(told.truth[:, 0], told.probability[:, 0])(expit(3 * np.array([1.0, -2.0])))

    assert mapped == pytest.approx(expit(np.array([1.0, -2.0])), abs=0.03)


def test_probabilities_of_0_and_1_are_mapped_to_numbers_between():
    rows = np.array([0.0, 1.0, 0.5, 0.2])
    mapped = fit_temperature(np.array([False, False, True, True]), rows)(rows)

    assert ((mapped > 0) & (mapped < 1)).all()


def test_isotonic_keeps_the_order_and_stays_within_0_and_1(log_odds):
    told = drawn(log_odds, expit(log_odds) ** 3, seed=2)
    mapped = fit_isotonic(told.truth[:, 0], told.probability[:, 0])(np.linspace(-0.1, 1.1, 50))

    assert (np.diff(mapped) >= 0).all()
    assert mapped.min() >= 0
    assert mapped.max() <= 1


def test_heat_is_answered_with_temperature_and_a_shift_with_steps(log_odds):
    heated = recalibrate(drawn(log_odds, expit(3 * log_odds), seed=3))
    shifted = recalibrate(drawn(log_odds, expit(log_odds + 2), seed=3))

    assert heated.method == "temperature"
    assert shifted.method == "isotonic"
    assert shifted.brier["isotonic"] < shifted.brier["temperature"]


def test_what_validation_patients_ask_for_helps_patients_nobody_looked_at(log_odds):
    told = expit(log_odds + 2)
    test = drawn(log_odds, told, seed=11)
    mapped = recalibrate(drawn(log_odds, told, seed=10)).of(test)

    assert mapped.shape == (len(test), 1)
    for score in (brier_score_loss, log_loss):
        assert score(test.truth[:, 0], mapped[:, 0]) < 0.9 * score(test.truth[:, 0], test.probability[:, 0])


def test_a_patient_is_never_judged_by_a_map_fitted_on_its_other_stays():
    """Outcome and probability are the patient's own: fitted on another stay of theirs, steps would look perfect."""
    rng = np.random.default_rng(4)
    of_patient = np.repeat(rng.random(200), 10)
    rows = drawn(np.zeros(2_000), of_patient, seed=5, rows_of_each=10)
    rows = replace(rows, truth=np.repeat(rng.random(200) < 0.5, 10)[:, None])

    assert recalibrate(rows).brier["isotonic"] > 0.2


@pytest.mark.parametrize("side", [True, False])
def test_too_few_patients_with_or_without_the_outcome_give_no_map(side):
    truth = np.full(300, not side)
    truth[:100] = side  # many rows of ten patients
    rows = drawn(np.zeros(300), np.linspace(0.1, 0.9, 300), seed=6, rows_of_each=10)

    assert recalibrate(replace(rows, truth=truth[:, None])) is None
    truth[100] = side
    assert recalibrate(replace(rows, truth=truth[:, None])) is not None


def test_both_maps_are_tried(log_odds):
    assert recalibrate(drawn(log_odds, expit(log_odds), seed=7)).brier.keys() == recalibration._FITS.keys()
