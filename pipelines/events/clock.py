"""The two times of every event: `time` orders it, `available_at` says when it could be known (docs/clock.md).

A cohort cuts on one of them. ICD codes are written when a stay is over, for the bill; the date beside one says when
the thing was done, and its name may say how long it went on. So none of them is known before the end of its stay.
"""

from datetime import datetime

import polars as pl

from schemas.tables.events import CODED_AT_THE_END

Clock = dict[str, pl.Expr]
ONE_DAY = pl.duration(days=1)

NEVER = datetime(2299, 12, 31, 23, 59, 59, 999999)
"""Of what nobody can know yet: the last moment a table of ours may hold, later than any prediction."""


def coded_at(*, is_open: pl.Expr) -> pl.Expr:
    """Return from when on the ICD codes of a stay are known: its end, or never where it is not over.

    A stay that is over and yet contains no time, because it ends before it begins, is coded at its start.
    """
    return pl.coalesce("end", pl.when(is_open).then(pl.lit(NEVER, pl.Datetime("us"))).otherwise("start"))


def is_coded_at_the_end() -> pl.Expr:
    """Return whether an event is of a kind that is coded when its stay is over."""
    return pl.col("kind").is_in(CODED_AT_THE_END)


DIAGNOSIS: Clock = {"time": pl.col("start"), "available_at": pl.col("coded_at")}
PROCEDURE: Clock = {
    "time": pl.col("chartdate").cast(pl.Datetime("us")),
    # only the day is recorded, so what is done on the day of the discharge is certain at the next midnight
    "available_at": pl.max_horizontal("coded_at", pl.col("chartdate").cast(pl.Datetime("us")) + ONE_DAY),
}
LABORATORY: Clock = {
    "time": pl.col("charttime"),
    "available_at": pl.max_horizontal("charttime", "storetime"),
}
ADMINISTRATION: Clock = {"time": pl.col("charttime"), "available_at": pl.col("charttime")}
