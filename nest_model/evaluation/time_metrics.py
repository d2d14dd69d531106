"""How good predicted times to an event are: Harrell's concordance and the integrated Brier score, also of resamples.

A resample is a vector of row weights; each function equals its plain definition on the rows repeated as often as the
weights say, which the tests check.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from nest_model.data.times import kaplan_meier
from schemas.suppress import SMALLEST_SHOWN

ROWS_AT_A_TIME = 512


def risk_of(survival: np.ndarray, times_days: Sequence[float]) -> np.ndarray:
    """Return one number per row by which rows are ranked: less the mean event-free days up to the last time.

    The restricted mean (Royston and Parmar 2013), with survival linear between the times.
    """
    widths = np.diff(np.append(0.0, times_days))
    whole = np.concatenate([np.ones((len(survival), 1)), survival], axis=1)
    # not a matrix product, whose last digits may differ between rows that are equal
    risk: np.ndarray = -((whole[:, :-1] + whole[:, 1:]) / 2 * widths).sum(axis=1)
    return risk


def concordance(days: np.ndarray, event: np.ndarray, risk: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return Harrell's C [resamples] under weights [resamples, rows]; NaN where no two rows can be compared.

    Of two rows of which one is known to have the event first (Harrell et al. 1982), how often it has the higher risk;
    an equal risk counts one half. Two events at one time cannot be compared; an event and the end of another's
    follow-up at one time can.
    """
    _, order_key = np.unique(np.stack([days, ~event.astype(bool)]), axis=1, return_inverse=True)
    order = np.argsort(order_key.ravel(), kind="stable")
    key, event, risk, weights = order_key.ravel()[order], event[order], risk[order], weights[:, order]
    by_risk = np.argsort(risk, kind="stable")
    risks = risk[by_risk]
    agreements, pairs = np.zeros(len(weights)), np.zeros(len(weights))
    for first, end in _chunks(key):
        rows = first + np.flatnonzero(event[first:end])
        if not len(rows):
            continue
        later = np.where(by_risk >= end, weights[:, by_risk], 0.0)
        below = np.concatenate([np.zeros((len(weights), 1)), np.cumsum(later, axis=1)], axis=1)
        lower, upper = (below[:, np.searchsorted(risks, risk[rows], side=side)] for side in ("left", "right"))
        inside = key[None, first:end] > key[rows, None]
        higher = (risk[None, first:end] < risk[rows, None]) + 0.5 * (
            risk[None, first:end] == risk[rows, None]
        )
        chunk = weights[:, first:end]
        agreements += (weights[:, rows] * ((lower + upper) / 2 + chunk @ (inside * higher).T)).sum(axis=1)
        pairs += (weights[:, rows] * (below[:, -1:] + chunk @ inside.T.astype(float))).sum(axis=1)
    share: np.ndarray = np.divide(agreements, pairs, out=np.full(len(weights), np.nan), where=pairs > 0)
    return share


def _chunks(key: np.ndarray) -> list[tuple[int, int]]:
    """Return the first row and the end of runs of about `ROWS_AT_A_TIME` rows that split no group of equal keys."""
    starts = np.append(np.flatnonzero(np.diff(key, prepend=-1)), len(key))
    bounds = [0]
    for start in starts:
        if start - bounds[-1] >= ROWS_AT_A_TIME:
            bounds.append(int(start))
    if bounds[-1] < len(key):
        bounds.append(len(key))
    return list(pairwise(bounds))


def brier_times(days: np.ndarray, subject_id: np.ndarray, times_days: Sequence[float]) -> int:
    """Return how many of the times, the first ones, have eleven patients or more still followed after them."""
    return sum(len(np.unique(subject_id[days > time])) >= SMALLEST_SHOWN for time in times_days)


def brier_by_row(
    days: np.ndarray, event: np.ndarray, survival: np.ndarray, times_days: Sequence[float]
) -> np.ndarray:
    """Return each row's part [rows] of the integrated Brier score, whose mean it is.

    Squared errors at each time, weighted by the inverse probability of being followed so long, by Kaplan-Meier on these
    rows (Graf et al. 1999), and averaged over time by trapezoids from 0, where the error is 0.
    """
    times, event = np.asarray(times_days), event.astype(bool)
    just_before = np.nextafter(days, -np.inf)
    share_in_follow_up = kaplan_meier(days, ~event, times)
    weight_of_event = 1 / np.maximum(kaplan_meier(days, ~event, just_before), np.finfo(float).tiny)
    came = event[:, None] & (days[:, None] <= times)
    errors = (
        came * survival**2 * weight_of_event[:, None]
        + (days[:, None] > times) * (1 - survival) ** 2 / share_in_follow_up
    )
    whole = np.concatenate([np.zeros((len(days), 1)), errors], axis=1)
    part: np.ndarray = (whole[:, :-1] + whole[:, 1:]) / 2 @ np.diff(np.append(0.0, times)) / times[-1]
    return part
