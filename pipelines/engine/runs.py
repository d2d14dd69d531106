"""Values that repeat: what hangs on them alone is found once for each, or for each run of them, not once a row."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import polars as pl

Column = np.ndarray | pl.Series
Values = TypeVar("Values", np.ndarray, pl.Series)


def map_distinct(values: pl.Series, change: Callable[[pl.Series], pl.Series]) -> pl.Series:
    """Return `change(values)`, computed from each distinct value once; null stays null, and `change` sees none.

    Args:
        values: of any type Arrow keeps in a dictionary.
        change: looks at every value alone.
    """
    dictionary = values.to_arrow(compat_level=pl.CompatLevel.oldest()).dictionary_encode()
    return change(pl.Series(values.name, dictionary.dictionary, dtype=values.dtype)).gather(
        pl.Series(dictionary.indices)
    )


class Runs:
    """The runs of rows that are alike in some columns, of which hospitals' tables are full: a draw, a stay, an order.

    Args:
        columns: [rows] each, at least one; two nulls are alike, and in a Series two NaNs.
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
        """How many rows each has, i64 [runs]."""
        return np.diff(self.heads, append=self._rows)

    def spread(self, values: Values) -> Values:
        """Return to every row its run's value.

        Args:
            values: [runs].

        Raises:
            ValueError: they are more or fewer.
        """
        if len(values) != len(self):
            raise ValueError(f"{len(values):,} values for {len(self):,} runs of rows")
        if isinstance(values, np.ndarray):
            return np.repeat(values, self.sizes)
        return values[np.repeat(np.arange(len(self), dtype=np.uint32), self.sizes)]


def _differs(column: Column) -> np.ndarray:
    """Return of each row but the first whether it is not as the one before it."""
    if isinstance(column, np.ndarray):
        differs: np.ndarray = column[1:] != column[:-1]
        return differs
    return column[1:].ne_missing(column[:-1]).to_numpy()
