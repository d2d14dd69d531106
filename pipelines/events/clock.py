"""The two times of every event: `time` orders it, `available_at` is when it could be known (docs/clock.md).

A cohort cuts on one of them. ICD codes are written for billing when a stay is over; the date next to a code is when the
procedure was done, and its name may even say how long it lasted. So no ICD code is known before the end of its stay.
"""

from datetime import datetime

import polars as pl

from schemas.tables.events import CODED_AT_THE_END

Clock = dict[str, pl.Expr]
ONE_DAY = pl.duration(days=1)

NEVER = datetime(2299, 12, 31, 23, 59, 59, 999999)
"""The latest time our tables may hold, later than any prediction: for codes that are not known yet."""


def coded_at(*, is_open: pl.Expr) -> pl.Expr:
    """Return when the ICD codes of a stay become known: at its end, or never while the stay is open.

    A closed stay without a valid end, because the recorded end lies before its start, is coded at its start.
    """
    return pl.coalesce("end", pl.when(is_open).then(pl.lit(NEVER, pl.Datetime("us"))).otherwise("start"))


def is_coded_at_the_end() -> pl.Expr:
    """Return whether an event is of a kind that is coded after its stay is over."""
    return pl.col("kind").is_in(CODED_AT_THE_END)


DIAGNOSIS: Clock = {"time": pl.col("start"), "available_at": pl.col("coded_at")}
PROCEDURE: Clock = {
    "time": pl.col("chartdate").cast(pl.Datetime("us")),
    # only the day is recorded, so a procedure on the day of discharge is certain only at the next midnight
    "available_at": pl.max_horizontal("coded_at", pl.col("chartdate").cast(pl.Datetime("us")) + ONE_DAY),
}
LABORATORY: Clock = {
    "time": pl.col("charttime"),
    "available_at": pl.max_horizontal("charttime", "storetime"),
}
ADMINISTRATION: Clock = {"time": pl.col("charttime"), "available_at": pl.col("charttime")}
