"""The calibration slope: whether predicted risks are spread as widely as the outcomes are."""

import numpy as np
from scipy.special import expit, logit

_EDGE = 1e-6  # log-odds of a probability of 0 or 1 are infinite
_STEPS = 8  # of Newton's method, which doubles the digits in each
_CONVERGED = 1e-4  # without which there is no slope: one outcome is missing, or predictions separate the two


def slope(truth: np.ndarray, probability: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the slope of a logistic regression of the outcome on the predicted log-odds, [resamples].

    1 is right; below 1 the predictions are too extreme, above it too timid (Cox, Two further applications of a model
    for binary regression, Biometrika 1958). NaN where it is not defined: predictions are all the same, a resample lacks
    an outcome, or the predictions separate the outcomes.

    Args:
        truth, probability: [rows]. weights: [resamples, rows].
    """
    log_odds = logit(probability.clip(_EDGE, 1 - _EDGE))
    of_all = _newton(log_odds, truth, np.ones((1, len(truth))), np.zeros((1, 2)), 3 * _STEPS)
    return _newton(log_odds, truth, weights, np.repeat(of_all, len(weights), axis=0), _STEPS)[:, 1]


def _newton(
    log_odds: np.ndarray, truth: np.ndarray, weights: np.ndarray, starts: np.ndarray, steps: int
) -> np.ndarray:
    """Return intercept and slope of greatest likelihood, [resamples, 2]; NaN where there are none."""
    fits = starts.copy()
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        for _ in range(steps):
            expected = expit(fits[:, :1] + fits[:, 1:] * log_odds)
            gap, information = weights * (truth - expected), weights * expected * (1 - expected)
            gradient = np.column_stack([gap.sum(axis=1), gap @ log_odds])
            ones, once, twice = information.sum(axis=1), information @ log_odds, information @ log_odds**2
            determinant = ones * twice - once**2
            is_flat = determinant <= 1e-9 * ones * twice
            move = (
                np.column_stack(
                    [
                        twice * gradient[:, 0] - once * gradient[:, 1],
                        ones * gradient[:, 1] - once * gradient[:, 0],
                    ]
                )
                / np.where(is_flat, np.nan, determinant)[:, None]
            )
            fits += move
            largest = np.abs(move).max(axis=1, keepdims=True)
            if not (largest > 1e-10).any():
                break
    return np.where(largest < _CONVERGED, fits, np.nan)
