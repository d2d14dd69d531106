"""The period of each patient: the real years of their records, where the source gives them."""

from pathlib import Path

import numpy as np

from schemas.contract import read_table
from schemas.io.verify import is_written
from schemas.tables.subject_years import SUBJECT_YEARS

UNKNOWN = ""


def periods_of(subject_years: Path, subject_id: np.ndarray) -> np.ndarray | None:
    """Return the period of each row's patient, such as `2011 - 2013`, `UNKNOWN` without one.

    Returns None if the source has no such table, or no two periods among these rows.
    """
    if not is_written(subject_years):
        return None
    table = read_table(subject_years, SUBJECT_YEARS)
    subjects = table["subject_id"].to_numpy()
    years = np.array(table["years"].fill_null(UNKNOWN).to_pylist(), dtype=object)
    place = np.searchsorted(subjects, subject_id).clip(max=max(0, len(subjects) - 1))
    if not len(subjects):
        return None
    period = np.where(subjects[place] == subject_id, years[place], UNKNOWN)
    return period if len(set(period) - {UNKNOWN}) > 1 else None


def earlier_periods(period: np.ndarray, is_training: np.ndarray) -> list[str]:
    """Return the first periods, as many as hold at least half of the training rows, but never the last one.

    Args:
        period: [rows]. is_training: bool [rows].
    """
    names = sorted(set(period) - {UNKNOWN})
    counts = np.cumsum([np.count_nonzero(is_training & (period == name)) for name in names])
    enough = int(np.searchsorted(counts, counts[-1] / 2)) + 1
    return names[: min(enough, len(names) - 1)]
