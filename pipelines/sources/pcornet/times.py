"""Dates and `HH:MI` times of a CDM as timestamps, and their faults.

For a missing or invalid time, a start is the first moment of the day, and an end or a time of knowledge the last. So
nothing is known too early, and an event without a time comes after another only if its date is strictly later: no
column has to say of every row whether its time is known.
"""

from collections.abc import Iterable
from datetime import date

import polars as pl

FIRST_DATE, LAST_DATE = date(1900, 1, 2), date(2199, 12, 31)
"""Dates outside are sentinels: 1753-01-01, 1900-01-01, 9999-12-31 and what PostgreSQL's infinity becomes."""

MIDNIGHT_AFTER = "24:00"
_TIME = r"^([01][0-9]|2[0-3]):([0-5][0-9])(:[0-5][0-9](\.[0-9]+)?)?$"
ONE_DAY = pl.duration(days=1, time_unit="us")
ONE_MICROSECOND = pl.duration(microseconds=1, time_unit="us")


def is_sentinel(column: str) -> pl.Expr:
    """Return whether a date is a sentinel for a missing date; false for null."""
    return ~pl.col(column).is_between(pl.lit(FIRST_DATE), pl.lit(LAST_DATE)).fill_null(True)


def without_sentinels(rows: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Return the rows with sentinels replaced by null."""
    return rows.with_columns(pl.when(~is_sentinel(name)).then(pl.col(name)) for name in columns)


def has_sentinel(columns: Iterable[str]) -> pl.Expr:
    """Return whether one of a row's dates is a sentinel."""
    return pl.any_horizontal(is_sentinel(name) for name in columns)


def is_midnight_after(time: str) -> pl.Expr:
    """Return whether a time is `24:00`, the midnight at the end of the day."""
    return pl.col(time).str.starts_with(MIDNIGHT_AFTER).fill_null(False)


def is_valid_time(time: str) -> pl.Expr:
    """Return whether a time is valid: `HH:MI`, with or without seconds, or `24:00`."""
    return (pl.col(time).str.contains(_TIME) | is_midnight_after(time)).fill_null(False)


def is_invalid_time(time: str) -> pl.Expr:
    """Return whether a time is given but invalid."""
    return pl.col(time).is_not_null() & ~is_valid_time(time)


def first_moment(day: str | pl.Expr, time: str | None = None) -> pl.Expr:
    """Return when something began: at its time, else at the start of its day; `24:00` is the next day's start."""
    midnight = _date(day).cast(pl.Datetime("us"))
    return (
        midnight if time is None else midnight + _since_midnight(time).fill_null(pl.duration(microseconds=0))
    )


def last_moment(day: str | pl.Expr, time: str | None = None) -> pl.Expr:
    """Return when something had ended or was known: at its time, else at the last microsecond of its day."""
    midnight, to_day_end = _date(day).cast(pl.Datetime("us")), ONE_DAY - ONE_MICROSECOND
    return midnight + (to_day_end if time is None else _since_midnight(time).fill_null(to_day_end))


def _since_midnight(time: str) -> pl.Expr:
    """Return the time as a duration since midnight; null if missing or invalid."""
    hours, minutes = (pl.col(time).str.extract(_TIME, group).cast(pl.Int64) for group in (1, 2))
    on_the_day = pl.duration(hours=hours, minutes=minutes, time_unit="us")
    return pl.when(is_midnight_after(time)).then(ONE_DAY).otherwise(on_the_day)


def _date(day: str | pl.Expr) -> pl.Expr:
    return pl.col(day) if isinstance(day, str) else day
