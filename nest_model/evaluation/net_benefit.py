"""Decision curves: the net benefit of acting on a prediction, at every threshold a clinician might choose.

Net benefit at threshold t is (true positives − false positives · t / (1 − t)) / rows: false alarms are weighed by the
odds at which a person is equally willing to act or not (Vickers and Elkin, Decision curve analysis, 2006).
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
    benefit: np.ndarray = (true - false * thresholds / (1 - thresholds)) / len(truth)
    return benefit


def net_benefit_of_all(truth: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Return the net benefit [thresholds] of acting on every row; acting on none has net benefit 0."""
    return net_benefit(truth, np.ones(len(truth)), thresholds)


def plot_thresholds(truth: np.ndarray) -> np.ndarray:
    """Return the thresholds to plot: up to three times the prevalence, and at least up to 0.1."""
    return THRESHOLDS[max(0.1, min(0.99, 3 * float(truth.mean()))) >= THRESHOLDS]
