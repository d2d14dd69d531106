"""The calibration slope: whether predicted risks are spread as widely as the outcomes are."""

import numpy as np
from scipy.special import expit, logit

_EDGE = 1e-6  # log-odds of a probability of 0 or 1 are infinite
_STEPS = 60  # of Newton's method, which doubles the digits in each once it is near
_LARGEST_STEP = 2.0  # in intercept and slope: a longer one may overshoot where the curve is flat
_CONVERGED = 1e-7
_STEEPEST = 50.0  # beyond it the predictions separate the outcomes, and the slope is infinite


def slope(truth: np.ndarray, probability: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the slope of a logistic regression of the outcome on the predicted log-odds, [resamples].

    1 is right; below 1 the predictions are too extreme, above it too timid (Cox, Two further applications of a model
    for binary regression, Biometrika 1958). NaN where it is not defined: predictions are all the same, a resample lacks
    an outcome, or the predictions separate the outcomes.

    Args:
        truth, probability: [rows]. weights: [resamples, rows].
    """
    log_odds = logit(probability.clip(_EDGE, 1 - _EDGE))
    if np.ptp(log_odds) == 0:
        return np.full(len(weights), np.nan)
    of_all = _newton(log_odds, truth, np.ones((1, len(truth))), np.zeros((1, 2)))
    return _newton(log_odds, truth, weights, np.repeat(np.nan_to_num(of_all), len(weights), axis=0))[:, 1]


def _newton(log_odds: np.ndarray, truth: np.ndarray, weights: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return intercept and slope of greatest likelihood, [resamples, 2]; NaN where there are none.

    Args:
        log_odds, truth: [rows]. weights: [resamples, rows]. starts: [resamples, 2].
    """
    fits, moving = starts.copy(), np.arange(len(weights))
    powers = np.column_stack([np.ones_like(log_odds), log_odds, log_odds**2])
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        for _ in range(_STEPS):
            expected = expit(fits[moving, :1] + fits[moving, 1:] * log_odds)
            gradient = (weights[moving] * (truth - expected)) @ powers[:, :2]
            ones, once, twice = ((weights[moving] * expected * (1 - expected)) @ powers).T
            determinant = ones * twice - once**2
            steps = np.column_stack(
                [
                    twice * gradient[:, 0] - once * gradient[:, 1],
                    ones * gradient[:, 1] - once * gradient[:, 0],
                ]
            )
            steps /= determinant[:, None]
            largest = np.abs(steps).max(axis=1)
            fits[moving] += steps * np.minimum(1, _LARGEST_STEP / largest)[:, None]
            is_lost = ~np.isfinite(largest) | (np.abs(fits[moving]) > _STEEPEST).any(axis=1)
            fits[moving[is_lost]] = np.nan
            moving = moving[~is_lost & (largest > _CONVERGED)]
            if not len(moving):
                break
    fits[moving] = np.nan
    return fits
