"""The items of a vocabulary that are measured: a token of theirs is the item and the decile of the value."""

import re
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

_DECILE = re.compile(r"(.+)_Q(10|[1-9])")
_VALUED = ("LAB", "VIT")


@dataclass(frozen=True)
class Measured:
    """Of each token, in the order of their ids, which item it measures and the decile; of another kind -1 and 0."""

    items: tuple[str, ...]  # LAB:50912 …
    item: np.ndarray  # i64 [tokens]
    decile: np.ndarray  # f64 [tokens]

    @classmethod
    def of(cls, tokens: pa.Table) -> Self:
        """Read token and kind of the tokens with an id, vocab/1."""
        item, decile = np.full(len(tokens), -1, dtype=np.int64), np.zeros(len(tokens))
        places: dict[str, int] = {}
        for place, (token, kind) in enumerate(
            zip(tokens["token"].to_pylist(), tokens["kind"].to_pylist(), strict=True)
        ):
            if kind in _VALUED and (parts := _DECILE.fullmatch(token)):
                item[place] = places.setdefault(parts[1], len(places))
                decile[place] = int(parts[2])
        return cls(tuple(places), item, decile)
