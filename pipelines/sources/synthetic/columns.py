"""Columns as the tables hold them: text times, missing values, choices by share."""

from collections.abc import Mapping

import numpy as np
import polars as pl

from pipelines.sources.synthetic.catalog import Bools, Ints, Texts


def times(minutes: Ints, present: Bools | None = None) -> pl.Series:
    """Return text times from minutes since 1970; null where not present."""
    return _formatted(minutes, "%Y-%m-%d %H:%M:%S", present)


def dates(minutes: Ints, present: Bools | None = None) -> pl.Series:
    """Return text dates from minutes since 1970; null where not present."""
    return _formatted(minutes, "%Y-%m-%d", present)


def _formatted(minutes: Ints, pattern: str, present: Bools | None) -> pl.Series:
    text = pl.from_epoch(pl.Series(minutes * 60), "s").dt.strftime(pattern)
    return text if present is None else masked(text, present)


def years(minutes: Ints) -> Ints:
    """Return calendar years from minutes since 1970."""
    return np.asarray(pl.from_epoch(pl.Series(minutes * 60), "s").dt.year().to_numpy(), dtype=np.int64)


def masked(values: pl.Series | Ints, present: Bools) -> pl.Series:
    """Return the values, null where not present."""
    return pl.select(pl.when(pl.Series(present)).then(pl.Series(values))).to_series()


def either(first: Bools, yes: pl.Series | str, no: pl.Series) -> pl.Series:
    """Return `yes` where the flag is up and `no` elsewhere."""
    return pl.select(pl.when(pl.Series(first)).then(pl.lit(yes)).otherwise(no)).to_series()


def pick(choices: Mapping[str | None, float], count: int, rng: np.random.Generator) -> pl.Series:
    """Draw texts in proportion to their shares."""
    shares = np.cumsum(list(choices.values()))
    index = np.searchsorted(shares / shares[-1], rng.random(count), side="right")
    return pl.Series(list(choices), dtype=pl.String)[index]


def providers(count: int, rng: np.random.Generator, missing: float = 0.3) -> pl.Series:
    """Draw the pseudonyms of staff."""
    text = pl.Series(rng.integers(0, 10_000, count)).cast(pl.String).str.zfill(4)
    return masked("P" + text + "X", rng.random(count) >= missing)


def texts(values: Texts) -> pl.Series:
    return pl.Series(values.tolist(), dtype=pl.String)
