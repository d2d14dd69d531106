"""Times to an event as hazards in intervals, and back to the probability of no event yet.

After Gensheimer and Narasimhan 2019, "A scalable discrete-time survival model for neural networks" (nnet-survival).
"""

from collections.abc import Sequence

import numpy as np


def interval_targets(days: np.ndarray, event: np.ndarray, times_days: Sequence[float]) -> np.ndarray:
    """Return f32 [rows, intervals]: 1 where the event came, 0 where it did not, -1 where a row is not observed.

    An interval is open at its start and closed at its end. One in which follow-up ends counts as observed if half of
    it or more was.
    """
    ends = np.asarray(times_days)
    starts = np.append(0.0, ends[:-1])
    days, event = days[:, None], event[:, None].astype(bool)
    has_event = event & (days > starts) & (days <= ends)
    is_free = np.where(event, days > ends, days >= (starts + ends) / 2)
    return np.where(has_event, 1, np.where(is_free, 0, -1)).astype(np.float32)


def survival(logits: np.ndarray) -> np.ndarray:
    """Return the probability of no event by the end of each interval, [rows, intervals], from the hazards' log-odds."""
    probability: np.ndarray = np.exp(-np.cumsum(np.logaddexp(0.0, logits), axis=1))
    return probability


def kaplan_meier(days: np.ndarray, event: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return Kaplan and Meier's (1958) estimate of no event up to and including each time `at`, in any order."""
    times, events = np.unique(days[event.astype(bool)], return_counts=True)
    at_risk = len(days) - np.searchsorted(np.sort(days), times, side="left")
    curve = np.append(1.0, np.cumprod(1 - events / at_risk))
    estimate: np.ndarray = curve[np.searchsorted(times, at, side="right")]
    return estimate
