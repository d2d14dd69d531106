"""The validation score by which every model's settings are chosen."""

import numpy as np

from nest_model.data.predictions import varying_columns

TUNING_LABELS = 8
"""How many of a list task's commonest labels choose a setting for all its labels."""


def mean_huber_loss(truth: np.ndarray, outputs: np.ndarray, delta: float) -> float:
    """Return Huber's mean loss of outputs on the scale of a number task: squared up to `delta`, linear beyond."""
    error = np.abs(truth - outputs)
    return float(np.where(error <= delta, error**2 / 2, delta * (error - delta / 2)).mean())


def macro_average_precision(truth: np.ndarray, probability: np.ndarray) -> float | None:
    """Return the mean AP over classes with both outcomes in these rows [rows, classes]; None without such a class."""
    from sklearn.metrics import average_precision_score

    scores = [average_precision_score(truth[:, k], probability[:, k]) for k in varying_columns(truth)]
    return float(np.mean(scores)) if scores else None
