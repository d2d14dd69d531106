"""Tell-tales: features so strongly associated with the outcome that they may reveal it, whatever their name."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse, stats

from nest_model.audit.columns import Columns
from nest_model.baselines.counts import patients_of_columns
from schemas.suppress import SMALLEST_SHOWN

MAX_IMPURITY = 0.2
"""Most rows without the outcome among those with a pure feature, relative to all rows, at the lower bound."""

MIN_SHARE_GAP = 0.6
"""Least difference in a feature's share between rows with the outcome and rows without."""

ALPHA = 0.001
"""Probability per feature that a bound is passed by chance."""


@dataclass(frozen=True)
class TellTale:
    """A feature that reveals a class of the outcome, and how."""

    feature: int
    label: int  # index of the class
    reason: str


def tell_tales(columns: Columns, truth: np.ndarray, subject_id: np.ndarray) -> list[TellTale]:
    """Return the telling features that at least eleven patients have, the most telling first.

    Args:
        columns, truth, subject_id: for the same rows; truth is bool [rows, classes].
    """
    present = columns.matrix.copy()
    present.data = np.ones_like(present.data)
    is_common = patients_of_columns(present, subject_id) >= SMALLEST_SHOWN
    strongest: dict[int, tuple[float, TellTale]] = {}
    for label in range(truth.shape[1]):
        for strength, reason, is_telling in (
            _pure(present, truth[:, label]),
            _apart(present, truth[:, label]),
        ):
            for column in np.flatnonzero(is_telling & is_common):
                tell_tale = TellTale(int(columns.feature[column]), label, reason)
                if strength[column] > strongest.get(tell_tale.feature, (0.0,))[0]:
                    strongest[tell_tale.feature] = (float(strength[column]), tell_tale)
    return [tell_tale for _, tell_tale in sorted(strongest.values(), key=lambda pair: -pair[0])]


def _pure(present: sparse.csr_matrix, truth: np.ndarray) -> tuple[np.ndarray, str, np.ndarray]:
    """Return strength, reason and mask of the columns where nearly all rows have the rarer outcome."""
    rare = truth if 2 * truth.sum() <= len(truth) else ~truth
    rows = np.asarray(present.sum(axis=0)).ravel()
    hits = np.asarray(present.T @ rare.astype(float)).ravel()
    share = rare.mean()
    lower_limit = stats.beta.ppf(ALPHA, hits, rows - hits + 1)  # Clopper and Pearson
    words = "nearly all predictions with it have the same outcome, which few others have"
    return (
        np.nan_to_num(lower_limit) * np.sqrt(hits),
        words,
        np.nan_to_num(lower_limit) >= 1 - MAX_IMPURITY * (1 - share),
    )


def _apart(present: sparse.csr_matrix, truth: np.ndarray) -> tuple[np.ndarray, str, np.ndarray]:
    """Return strength, reason and mask of the columns common with one outcome and rare with the other."""
    sides = [max(1, int(side.sum())) for side in (truth, ~truth)]
    shares = [
        np.asarray(present.T @ side.astype(float)).ravel() / size
        for side, size in zip((truth, ~truth), sides, strict=True)
    ]
    error = np.sqrt(sum(share * (1 - share) / size for share, size in zip(shares, sides, strict=True)))
    gap = np.abs(shares[0] - shares[1]) + stats.norm.ppf(ALPHA) * error
    words = "it alone separates most predictions with the outcome from most without"
    return gap * np.sqrt(len(truth)), words, gap >= MIN_SHARE_GAP
