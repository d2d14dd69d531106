"""Features that go with the outcome too well to be a sign of it: found in the data, whatever they are called."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse, stats

from nest_model.audit.columns import Columns
from nest_model.baselines.counts import patients_of_columns
from schemas.suppress import SMALLEST_SHOWN

IMPURE = 0.2
"""Of those with a telling feature at most this share of the usual one may lack the outcome, at its lower bound."""

APART = 0.6
"""By so much the share that has a telling feature differs between those with the outcome and those without."""

SURE = 0.001
"""The chance that a bound is passed by luck, for each feature."""


@dataclass(frozen=True)
class TellTale:
    """A feature that tells a class of the outcome, and how."""

    feature: int
    label: int  # of the classes
    how: str


def tell_tales(columns: Columns, truth: np.ndarray, subject_id: np.ndarray) -> list[TellTale]:
    """Return the telling features, the most telling first; none that under eleven patients have.

    Args:
        columns, truth, subject_id: of the same rows; truth bool [rows, classes].
    """
    present = columns.matrix.copy()
    present.data = np.ones_like(present.data)
    is_common = patients_of_columns(present, subject_id) >= SMALLEST_SHOWN
    strongest: dict[int, tuple[float, TellTale]] = {}
    for label in range(truth.shape[1]):
        for strength, how, marked in (_pure(present, truth[:, label]), _apart(present, truth[:, label])):
            for column in np.flatnonzero(marked & is_common):
                one = TellTale(int(columns.feature[column]), label, how)
                if strength[column] > strongest.get(one.feature, (0.0,))[0]:
                    strongest[one.feature] = (float(strength[column]), one)
    return [one for _, one in sorted(strongest.values(), key=lambda pair: -pair[0])]


def _pure(present: sparse.csr_matrix, truth: np.ndarray) -> tuple[np.ndarray, str, np.ndarray]:
    """Mark the columns nearly all of whose rows have the rarer of the two answers."""
    rare = truth if 2 * truth.sum() <= len(truth) else ~truth
    rows = np.asarray(present.sum(axis=0)).ravel()
    hits = np.asarray(present.T @ rare.astype(float)).ravel()
    share = rare.mean()
    bound = stats.beta.ppf(SURE, hits, rows - hits + 1)  # of Clopper and Pearson
    words = "nearly all predictions that hold it have the same outcome, which few others have"
    return np.nan_to_num(bound) * np.sqrt(hits), words, np.nan_to_num(bound) >= 1 - IMPURE * (1 - share)


def _apart(present: sparse.csr_matrix, truth: np.ndarray) -> tuple[np.ndarray, str, np.ndarray]:
    """Mark the columns that most rows of one answer have and few of the other."""
    sides = [max(1, int(side.sum())) for side in (truth, ~truth)]
    shares = [
        np.asarray(present.T @ side.astype(float)).ravel() / size
        for side, size in zip((truth, ~truth), sides, strict=True)
    ]
    error = np.sqrt(sum(share * (1 - share) / size for share, size in zip(shares, sides, strict=True)))
    gap = np.abs(shares[0] - shares[1]) + stats.norm.ppf(SURE) * error
    words = "alone it tells most predictions with the outcome from most without"
    return gap * np.sqrt(len(truth)), words, gap >= APART
