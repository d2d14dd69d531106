"""Discrete-time hazards for LightGBM and a linear model: a row per patient and observed interval, or a loss over them.

Pooled over the intervals as by Allison 1982, "Discrete-time methods for the analysis of event histories".
"""

from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import brentq, minimize
from scipy.special import expit


def interval_rows(
    features: sparse.csr_matrix, targets: np.ndarray
) -> tuple[sparse.csr_matrix, np.ndarray, np.ndarray]:
    """Return the observed intervals of each row: features with the interval's number, the event, and the row.

    Args:
        targets: see `nest_model.data.times.interval_targets`.
    """
    rows, intervals = np.nonzero(targets >= 0)
    return with_interval(features[rows], intervals), targets[rows, intervals] > 0, rows


def with_interval(features: sparse.csr_matrix, intervals: np.ndarray | int) -> sparse.csr_matrix:
    """Return features with one more column, the interval's number from 1."""
    column = np.full((features.shape[0], 1), 1.0, np.float32) * (np.asarray(intervals).reshape(-1, 1) + 1)
    return sparse.hstack([features, sparse.csr_matrix(column)], format="csr", dtype=np.float32)


def pooled_logistic(features: Any, targets: np.ndarray, strength: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights [columns] and the intercept of each interval [intervals] of a logistic regression of hazards.

    It has the objective of scikit-learn's `LogisticRegression` on the rows of `interval_rows` with a column per
    interval that is not penalised, but does not write the rows out.

    Args:
        features: a sparse matrix or an array.
        strength: scikit-learn's C; the smaller, the stronger the shrinkage.
    """
    is_observed, is_event = targets >= 0, targets > 0
    columns, intervals = features.shape[1], targets.shape[1]
    share = (is_event.sum(axis=0) + 0.5) / (is_observed.sum(axis=0) + 1)
    start = np.append(np.zeros(columns), np.log(share / (1 - share)))

    def loss_and_gradient(values: np.ndarray) -> tuple[float, np.ndarray]:
        weights, intercepts = values[:columns], values[columns:]
        logits = (features @ weights)[:, None] + intercepts
        losses = np.where(is_observed, np.logaddexp(0, logits) - is_event * logits, 0.0)
        errors = np.where(is_observed, 1 / (1 + np.exp(-logits)) - is_event, 0.0)
        gradient = np.append(
            strength * (features.T @ errors.sum(axis=1)) + weights, strength * errors.sum(axis=0)
        )
        return strength * float(losses.sum()) + float(weights @ weights) / 2, gradient

    options: dict[str, Any] = {"maxiter": 500}
    values = minimize(loss_and_gradient, start, jac=True, method="L-BFGS-B", options=options).x
    return values[:columns], values[columns : columns + intervals]


def mean_hazard_loss(logits: np.ndarray, targets: np.ndarray) -> float:
    """Return the mean over rows of the negative log-likelihood of their observed intervals."""
    losses = np.logaddexp(0, logits) - (targets > 0) * logits
    return float(np.where(targets >= 0, losses, 0.0).sum() / len(targets))


def levelled_hazard_loss(logits: np.ndarray, targets: np.ndarray) -> float:
    """Return `mean_hazard_loss` after one constant is added to all logits, so that as many events are expected as came.

    By it every model of a time is chosen on validation patients. A few hundred of them may have a third fewer events
    than the training patients; their plain loss is then smallest for a model that has learnt nothing but a low level.
    """
    is_observed = targets >= 0
    observed, events = logits[is_observed].astype(np.float64), float((targets > 0).sum())
    if not 0 < events < len(observed):
        return mean_hazard_loss(logits, targets)
    span = float(np.abs(observed).max()) + 30
    constant = brentq(lambda x: float(expit(observed + x).sum()) - events, -span, span, xtol=1e-9)
    return mean_hazard_loss(logits + constant, targets)
