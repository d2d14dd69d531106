"""Decision curves: what acting on a prediction is worth, at every threshold a person might act from.

Net benefit at threshold t is (true positives − false positives · t / (1 − t)) / rows: false alarms are weighed by the
odds at which a person is as willing to act as not (Vickers and Elkin, Decision curve analysis, 2006).
"""

import numpy as np

THRESHOLDS = np.arange(1, 100) / 100


def net_benefit(truth: np.ndarray, probability: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Return the net benefit [thresholds] of acting on rows whose probability is at least the threshold.

    Args:
        truth: bool [rows].
        probability: [rows].
        thresholds: strictly between 0 and 1.
    """
    order = np.sort(probability[truth]), np.sort(probability[~truth])
    true, false = (len(side) - np.searchsorted(side, thresholds, side="left") for side in order)
    return (true - false * thresholds / (1 - thresholds)) / len(truth)


def of_treating_all(truth: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Return the net benefit [thresholds] of acting on every row; of acting on none it is 0."""
    return net_benefit(truth, np.ones(len(truth)), thresholds)


def shown_thresholds(truth: np.ndarray) -> np.ndarray:
    """Return the thresholds a curve is worth a look at: up to three times the prevalence, at least to 0.1."""
    return THRESHOLDS[max(0.1, min(0.99, 3 * float(truth.mean()))) >= THRESHOLDS]
