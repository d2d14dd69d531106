"""Recalibration: maps of the predicted probabilities, fitted on validation patients and never on test patients.

Two maps are tried. Temperature scaling divides the log-odds by one number (Guo et al., On Calibration of Modern Neural
Networks, 2017); isotonic regression fits a non-decreasing step function (Zadrozny and Elkan, 2002). The map with the
lower cross-validated Brier score is chosen, in five folds of validation patients.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import brier_score_loss
from sklearn.model_selection import GroupKFold

from nest_model.data.predictions import Predictions

Method = Literal["temperature", "isotonic"]
Map = Callable[[np.ndarray], np.ndarray]  # probability [rows] → probability [rows]

FOLDS = 5
_COLDEST, _HOTTEST = 1 / 20, 20.0  # bounds of the temperature search
_EDGE = 1e-6  # log-odds of a probability of 0 or 1 are infinite


@dataclass(frozen=True)
class Recalibration:
    """The chosen map, and each map's cross-validated Brier score on validation patients."""

    method: Method
    map: Map
    brier: Mapping[Method, float]

    def apply(self, predictions: Predictions) -> np.ndarray:
        """Return the recalibrated probabilities [rows, 1] of a bool task."""
        return self.map(predictions.probability[:, 0])[:, None]


def recalibrate(validation: Predictions) -> Recalibration | None:
    """Fit both maps on the validation rows of a bool task and return the one with the lower Brier score.

    Returns None with under eleven patients with the outcome, or without: a map fitted on so few is unreliable and
    could disclose a patient.
    """
    truth, probability = validation.truth[:, 0], validation.probability[:, 0]
    if not len(validation.scorable()):
        return None
    folds = list(GroupKFold(FOLDS).split(probability, groups=validation.subject_id))
    brier = {method: _held_out_brier(fit, truth, probability, folds) for method, fit in _FITS.items()}
    method = min(brier, key=lambda name: brier[name])
    return Recalibration(method, _FITS[method](truth, probability), brier)


def fit_temperature(truth: np.ndarray, probability: np.ndarray) -> Map:
    """Return p → σ(logit(p) / T) with the T of least log loss on these rows."""

    log_odds = _log_odds(probability)
    sign = np.where(truth, -1.0, 1.0)

    def loss(log_temperature: float) -> float:
        return float(np.logaddexp(0, sign * log_odds / np.exp(log_temperature)).mean())

    optimum = minimize_scalar(loss, bounds=(np.log(_COLDEST), np.log(_HOTTEST)), method="bounded")
    temperature = float(np.exp(optimum.x))
    return lambda later: _tempered(later, temperature)


def fit_isotonic(truth: np.ndarray, probability: np.ndarray) -> Map:
    """Return the non-decreasing function with least squared error on these rows, linear between its steps."""
    regression = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(probability, truth)
    predict: Map = regression.predict
    return predict


_FITS: dict[Method, Callable[[np.ndarray, np.ndarray], Map]] = {
    "temperature": fit_temperature,
    "isotonic": fit_isotonic,
}


def _tempered(probability: np.ndarray, temperature: float) -> np.ndarray:
    tempered_probability: np.ndarray = expit(_log_odds(probability) / temperature)
    return tempered_probability


def _log_odds(probability: np.ndarray) -> np.ndarray:
    log_odds: np.ndarray = logit(np.clip(probability, _EDGE, 1 - _EDGE))
    return log_odds


def _held_out_brier(
    fit: Callable[[np.ndarray, np.ndarray], Map],
    truth: np.ndarray,
    probability: np.ndarray,
    folds: Sequence[tuple[np.ndarray, np.ndarray]],
) -> float:
    held_out = np.empty(len(truth))
    for fit_rows, held_out_rows in folds:
        held_out[held_out_rows] = fit(truth[fit_rows], probability[fit_rows])(probability[held_out_rows])
    return float(brier_score_loss(truth, held_out))
