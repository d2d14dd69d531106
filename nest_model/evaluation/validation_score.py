"""The validation score by which every model's settings are chosen."""

import numpy as np

from nest_model.data.predictions import varying_columns

TUNING_LABELS = 8
"""How many of a list task's commonest labels choose a setting for all its labels."""


def macro_average_precision(truth: np.ndarray, probability: np.ndarray) -> float | None:
    """Return the mean AP over classes with both outcomes in these rows [rows, classes]; None without such a class."""
    from sklearn.metrics import average_precision_score

    scores = [average_precision_score(truth[:, k], probability[:, k]) for k in varying_columns(truth)]
    return float(np.mean(scores)) if scores else None
