"""Checks of a MEDS file: no missing values, plausible times, sorted rows, each subject in one file."""

from collections import Counter
from datetime import datetime

import polars as pl

from pipelines.reading.tables import FIRST_YEAR, LAST_YEAR, count_outside
from schemas.errors import InputError
from schemas.nouns import with_noun

TIMES = ("time", "available_at")


class FileChecks:
    """The checks of one MEDS file, batch by batch."""

    def __init__(self) -> None:
        self.rows = 0
        self.is_sorted = True
        self._missing, self._outside = Counter[str](), Counter[str]()
        self._runs: list[pl.Series] = []
        self._last: tuple[int, datetime | None] | None = None

    def add(self, rows: pl.DataFrame) -> None:
        """Check the next rows.

        Args:
            rows: subject_id, time, code, and optionally available_at.
        """
        self.rows += rows.height
        self._outside.update({name: count_outside(rows[name]) for name in TIMES if name in rows.columns})
        self._missing["subject_id"] += rows["subject_id"].null_count()
        self._missing["code"] += rows.filter(pl.col("code").fill_null("").str.strip_chars() == "").height
        if not rows.height:
            return
        subject, time = rows["subject_id"], rows["time"]
        previous = pl.DataFrame({"subject": subject.shift(), "time": time.shift()})
        if self._last is not None:
            previous[0, "subject"], previous[0, "time"] = self._last
        is_same_subject = subject == previous["subject"]
        is_backwards = (is_same_subject & (time < previous["time"])).fill_null(False)
        self.is_sorted &= not is_backwards.any()
        self._runs.append(subject.filter(~is_same_subject.fill_null(False)))
        self._last = (subject[-1], time[-1])

    def refuse_missing_values(self, name: str) -> None:
        """Refuse a file in which a subject or a code is missing."""
        for column, count in self._missing.items():
            if count:
                raise InputError(
                    f"{name}: column {column}: {count:,} of {self.rows:,} rows have none; MEDS requires a value. Leave "
                    "those rows out, or write the file again."
                )

    def refuse_impossible_times(self, name: str) -> None:
        """Refuse a file with times outside FIRST_YEAR to LAST_YEAR."""
        for column, count in self._outside.items():
            if count:
                raise InputError(
                    f"{name}: column {column}: {count:,} of {self.rows:,} values lie outside the years {FIRST_YEAR} to "
                    f"{LAST_YEAR}. Correct those rows or leave them out."
                )

    def subjects(self) -> pl.Series:
        """Return the file's distinct subjects; a subject that returns after another makes the file unsorted."""
        runs = pl.concat(self._runs) if self._runs else pl.Series(dtype=pl.Int64)
        distinct = runs.unique()
        self.is_sorted &= len(distinct) == len(runs)
        return distinct


def refuse_split_subjects(ids: list[pl.Series]) -> int:
    """Return the number of subjects; refuse a dataset in which one lies in more than one file."""
    all_ids = pl.concat(ids)
    num_shared = len(all_ids) - all_ids.n_unique()
    if num_shared:
        raise InputError(
            f"data: rows of {with_noun(num_shared, 'subject')} lie in more than one file; MEDS keeps a subject in one. "
            "Remove the duplicate file, or write each subject's rows together."
        )
    return len(all_ids)


def refuse_ambiguous_encounters(stays: pl.DataFrame, column: str | None) -> None:
    """Refuse encounters that belong to more than one subject."""
    num_shared = stays.height - stays["encounter_id"].n_unique()
    if num_shared:
        raise InputError(
            f"data: column {column}: rows of {with_noun(num_shared, 'encounter')} belong to more than one subject. Set "
            "NEST_MEDS_ENCOUNTER_COLUMN to a column that identifies one encounter of one subject, or to `none`."
        )
