"""Computes once per distinct value, or once per run of equal values, instead of once per row."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import polars as pl

Column = np.ndarray | pl.Series
ArrayOrSeries = TypeVar("ArrayOrSeries", np.ndarray, pl.Series)


def map_distinct(values: pl.Series, change: Callable[[pl.Series], pl.Series]) -> pl.Series:
    """Return `change(values)`, computed once per distinct value; nulls stay null and are not passed to `change`.

    Args:
        values: of any type that Arrow can dictionary-encode.
        change: an elementwise function.
    """
    dictionary = values.to_arrow(compat_level=pl.CompatLevel.oldest()).dictionary_encode()
    return change(pl.Series(values.name, dictionary.dictionary, dtype=values.dtype)).gather(
        pl.Series(dictionary.indices)
    )


class Runs:
    """The runs of consecutive rows equal in some columns, e.g. the rows of one blood draw, stay or order.

    Args:
        columns: [rows] each, at least one; two nulls are equal, and so are two NaNs in a Series.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self._rows = len(columns[0])
        begins = np.zeros(self._rows, dtype=bool)
        begins[:1] = True
        for column in columns:
            begins[1:] |= _differs(column)
        self.heads = np.flatnonzero(begins)
        """The first row of each run, i64 [runs]."""

    def __len__(self) -> int:
        return len(self.heads)

    @property
    def sizes(self) -> np.ndarray:
        """The number of rows of each run, i64 [runs]."""
        return np.diff(self.heads, append=self._rows)

    def spread(self, values: ArrayOrSeries) -> ArrayOrSeries:
        """Return for every row the value of its run.

        Args:
            values: [runs].

        Raises:
            ValueError: the number of values is not the number of runs.
        """
        if len(values) != len(self):
            raise ValueError(f"{len(values):,} values for {len(self):,} runs of rows")
        if isinstance(values, np.ndarray):
            return np.repeat(values, self.sizes)
        return values[np.repeat(np.arange(len(self), dtype=np.uint32), self.sizes)]


def _differs(column: Column) -> np.ndarray:
    """Return for each row but the first whether it differs from the row before."""
    if isinstance(column, np.ndarray):
        differs: np.ndarray = column[1:] != column[:-1]
        return differs
    return column[1:].ne_missing(column[:-1]).to_numpy()
