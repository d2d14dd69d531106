"""What MEDS asks of a file and a reader may trust: no gaps, sorted, a subject's rows together."""

from collections import Counter
from datetime import datetime

import polars as pl

from schemas.errors import InputError


class Inspected:
    """What MEDS asks of the rows of one file, looked at batch by batch."""

    def __init__(self) -> None:
        self.rows = 0
        self.is_sorted = True
        self._missing = Counter[str]()
        self._runs: list[pl.Series] = []
        self._last: tuple[int, datetime | None] | None = None

    def add(self, rows: pl.DataFrame) -> None:
        """Look at the next rows.

        Args:
            rows: subject_id, time, code.
        """
        self.rows += rows.height
        self._missing["subject_id"] += rows["subject_id"].null_count()
        self._missing["code"] += rows.filter(pl.col("code").fill_null("").str.strip_chars() == "").height
        if not rows.height:
            return
        subject, time = rows["subject_id"], rows["time"]
        before = pl.DataFrame({"subject": subject.shift(), "time": time.shift()})
        if self._last is not None:
            before[0, "subject"], before[0, "time"] = self._last
        same = subject == before["subject"]
        back = (same & (time < before["time"])).fill_null(False)
        self.is_sorted &= not back.any()
        self._runs.append(subject.filter(~same.fill_null(False)))
        self._last = (subject[-1], time[-1])

    def refuse_gaps(self, name: str) -> None:
        """Raise InputError where a subject or a code is missing."""
        for column, count in self._missing.items():
            if count:
                raise InputError(
                    f"{name}: column {column}: {count:,} of {self.rows:,} rows have none, and MEDS allows none. Leave "
                    "those rows out, or write the file again."
                )

    def subjects(self) -> pl.Series:
        """Return the file's subjects, each once; a subject that comes back after another makes the file unsorted."""
        runs = pl.concat(self._runs) if self._runs else pl.Series(dtype=pl.Int64)
        distinct = runs.unique()
        self.is_sorted &= len(distinct) == len(runs)
        return distinct
