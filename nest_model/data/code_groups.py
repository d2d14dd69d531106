"""What codes have in common: the groups a vocabulary's tokens belong to, and how much of each a token is."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from nest_model.data.measured import Measured
from schemas.icd10 import chapter_of

_ATC_LEVELS = (1, 3, 4, 5)
_PCS_LEVELS = (1, 3)  # section; with body system and operation
_MIDDLE, _SPREAD = 5.5, 2.87  # of the deciles 1 … 10, mean and standard deviation


def groups_of(kind: str, code: str | None) -> list[str]:
    """Return what a code is rolled up to: ICD category and chapter, ATC levels, what a procedure is."""
    if not code:
        return []
    if kind == "DX":
        chapter = chapter_of(code[:3])
        return [f"category {code[:3]}", *([f"chapter {chapter}"] if chapter else [])]
    if kind == "MED" and not code.startswith("RX"):  # a code of RxNorm says nothing of what it is near to
        return [f"ATC {code[:length]}" for length in _ATC_LEVELS if length < len(code)]
    if kind == "PR":
        return [f"procedure {code[:length]}" for length in _PCS_LEVELS if length < len(code)]
    return []


@dataclass(frozen=True)
class CodeGroups:
    """Of each token which groups it is in and by what factor, entry by entry, by rising token."""

    names: tuple[str, ...]
    token: np.ndarray  # i64 [entries]
    group: np.ndarray  # i64 [entries], of `names`
    factor: np.ndarray  # f32 [entries]

    @classmethod
    def of(cls, tokens: pa.Table) -> Self:
        """Read token, kind and code of the tokens with an id, in the order of their ids, vocab/1.

        Every token but the specials is in its kind, where there are several, and a code in its `groups_of`, with
        factor 1. A measured value is in its item and in its decile with 1, and in the item's slope and curve with z
        and z² - 1, where z is the decile less its mean, in standard deviations: so neighbouring deciles of an item are
        near, and a rare one is placed by the others.
        """
        measured, places = Measured.of(tokens), dict[str, int]()
        entries: list[tuple[int, int, float]] = []
        kinds = set(tokens["kind"].to_pylist()) - {"SPECIAL"}
        kinds = kinds if len(kinds) > 1 else set()  # what all share tells none apart
        codes = zip(tokens["kind"].to_pylist(), tokens["code"].to_pylist(), strict=True)
        for token, (kind, code) in enumerate(codes):
            shares = {f"kind {kind}": 1.0} if kind in kinds else {}
            if measured.item[token] >= 0:
                shares |= _of_a_value(measured.items[measured.item[token]], measured.decile[token])
            else:
                shares |= dict.fromkeys(groups_of(kind, code), 1.0)
            entries += [(token, places.setdefault(name, len(places)), of) for name, of in shares.items()]
        token, group, factor = zip(*entries, strict=True) if entries else ((), (), ())
        return cls(
            tuple(places),
            np.array(token, dtype=np.int64),
            np.array(group, dtype=np.int64),
            np.array(factor, dtype=np.float32),
        )


def _of_a_value(item: str, decile: float) -> dict[str, float]:
    z = (decile - _MIDDLE) / _SPREAD
    return {f"item {item}": 1.0, f"decile {decile:.0f}": 1.0, f"slope {item}": z, f"curve {item}": z * z - 1}
