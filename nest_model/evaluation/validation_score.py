"""What a choice is made by on the validation rows, whatever the model."""

import numpy as np

from nest_model.data.predictions import varying

TUNING_LABELS = 8
"""On this many of a list task's labels together, the commonest, a setting is chosen for all of them."""


def macro_average_precision(truth: np.ndarray, probability: np.ndarray) -> float | None:
    """Return AP, the mean over the classes these rows [rows, classes] can tell apart; None where they can none."""
    from sklearn.metrics import average_precision_score

    scores = [average_precision_score(truth[:, k], probability[:, k]) for k in varying(truth)]
    return float(np.mean(scores)) if scores else None
