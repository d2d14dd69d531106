"""Builds table columns: times as text, missing values, random choices by share."""

from collections.abc import Mapping
from functools import cache

import numpy as np
import polars as pl
import pyarrow as pa

from pipelines.synthetic.catalog import Bools, Ints, Texts

FIRST_DAY, LAST_DAY = np.datetime64("2100-01-01"), np.datetime64("2400-01-01")  # bounds of all times written


def times(minutes: Ints, present: Bools | None = None) -> pl.Series:
    """Return times from minutes since 1970; null where not present."""
    time = pl.from_epoch(pl.Series(minutes * 60), "s")
    return time if present is None else mask_values(time, present)


def dates(minutes: Ints, present: Bools | None = None) -> pl.Series:
    """Return dates from minutes since 1970; null where not present."""
    return times(minutes, present).dt.date()


def format_times(table: pl.DataFrame) -> pl.DataFrame:
    """Turn times and dates into text as in MIMIC-IV; table lookups are seven times as fast as formatting."""
    whole_days = [_lookup_times(column, with_clock=False) for column in table.select(pl.col(pl.Date))]
    minutes = [_lookup_times(column, with_clock=True) for column in table.select(pl.col(pl.Datetime))]
    return table.with_columns(*whole_days, *minutes)


def _lookup_times(times: pl.Series, *, with_clock: bool) -> pl.Series:
    first = int(FIRST_DAY.astype(np.int64))
    minutes = times.cast(pl.Datetime("ms")).to_physical().fill_null(first * 86_400_000).to_numpy() // 60_000
    day, minute = np.divmod(minutes, 1440)
    days, clocks = _day_texts(), _clock_texts()
    text = np.empty(len(day), dtype=[("day", days.dtype), *([("clock", clocks.dtype)] if with_clock else [])])
    text["day"] = days[day - first]
    if with_clock:
        text["clock"] = clocks[minute]
    ends = np.arange(len(text) + 1, dtype=np.int64) * text.dtype.itemsize
    whole = pa.LargeStringArray.from_buffers(len(text), pa.py_buffer(ends), pa.py_buffer(text))
    return mask_values(pl.Series(times.name, whole, dtype=pl.String), times.is_not_null())


@cache
def _day_texts() -> np.ndarray[tuple[int], np.dtype[np.bytes_]]:
    return np.datetime_as_string(np.arange(FIRST_DAY, LAST_DAY)).astype("S10")


@cache
def _clock_texts() -> np.ndarray[tuple[int], np.dtype[np.bytes_]]:
    return np.array([f" {minute // 60:02d}:{minute % 60:02d}:00" for minute in range(1440)], dtype="S9")


def years(minutes: Ints) -> Ints:
    """Return calendar years from minutes since 1970."""
    return np.asarray(pl.from_epoch(pl.Series(minutes * 60), "s").dt.year().to_numpy(), dtype=np.int64)


def mask_values(values: pl.Series | Ints, present: Bools | pl.Series) -> pl.Series:
    """Return the values, null where not present."""
    return pl.select(pl.when(pl.Series(present)).then(pl.Series(values))).to_series()


def choose(first: Bools, yes: pl.Series | str, no: pl.Series) -> pl.Series:
    """Return `yes` where the flag is set and `no` elsewhere."""
    return pl.select(pl.when(pl.Series(first)).then(pl.lit(yes)).otherwise(no)).to_series()


def pick(choices: Mapping[str | None, float], count: int, rng: np.random.Generator) -> pl.Series:
    """Draw texts in proportion to their shares."""
    shares = np.cumsum(list(choices.values()))
    index = np.searchsorted(shares / shares[-1], rng.random(count), side="right")
    return pl.Series(list(choices), dtype=pl.String)[index]


def providers(count: int, rng: np.random.Generator, missing: float = 0.3) -> pl.Series:
    """Draw pseudonyms of staff."""
    text = _provider_texts()[rng.integers(0, 10_000, count)]
    return mask_values(text, rng.random(count) >= missing)


@cache
def _provider_texts() -> pl.Series:
    return pl.Series([f"P{number:04d}X" for number in range(10_000)])


def text_column(values: Texts) -> pl.Series:
    return pl.Series(values.tolist(), dtype=pl.String)
