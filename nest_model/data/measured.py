"""Measured items of a vocabulary: their tokens name an item and the decile of its value."""

import re
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

_DECILE = re.compile(r"(.+)_Q(10|[1-9])")
_VALUED = ("LAB", "VIT")


@dataclass(frozen=True)
class MeasuredItems:
    """The item and decile of each token, in order of token id; -1 and 0 for tokens that measure nothing."""

    items: tuple[str, ...]  # LAB:50912 …
    item: np.ndarray  # i64 [tokens]
    decile: np.ndarray  # f64 [tokens]

    @classmethod
    def of(cls, tokens: pa.Table) -> Self:
        """Build the items from token and kind of a vocab/1 table sorted by token id."""
        item, decile = np.full(len(tokens), -1, dtype=np.int64), np.zeros(len(tokens))
        places: dict[str, int] = {}
        for place, (token, kind) in enumerate(
            zip(tokens["token"].to_pylist(), tokens["kind"].to_pylist(), strict=True)
        ):
            if kind in _VALUED and (parts := _DECILE.fullmatch(token)):
                item[place] = places.setdefault(parts[1], len(places))
                decile[place] = int(parts[2])
        return cls(tuple(places), item, decile)
