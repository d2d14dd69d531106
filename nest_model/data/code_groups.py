"""Groups of related codes: which groups each token of a vocabulary belongs to, and with what factor."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from nest_model.data.measured import MeasuredItems
from schemas.icd10 import chapter_of

_ATC_LEVELS = (1, 3, 4, 5)
_PCS_LEVELS = (1, 3)  # section; with body system and operation
_MIDDLE, _SPREAD = 5.5, 2.87  # mean and standard deviation of the deciles 1 … 10


def groups_of(kind: str, code: str | None) -> list[str]:
    """Return the groups of a code: ICD category and chapter, ATC levels, or procedure section and operation."""
    if not code:
        return []
    if kind == "DX":
        chapter = chapter_of(code[:3])
        return [f"category {code[:3]}", *([f"chapter {chapter}"] if chapter else [])]
    if kind == "MED" and not code.startswith("RX"):  # an RxNorm code says nothing about related drugs
        return [f"ATC {code[:length]}" for length in _ATC_LEVELS if length < len(code)]
    if kind == "PR":
        return [f"procedure {code[:length]}" for length in _PCS_LEVELS if length < len(code)]
    return []


@dataclass(frozen=True)
class CodeGroups:
    """The groups of each token with a factor: one entry per (token, group), sorted by token."""

    names: tuple[str, ...]
    token: np.ndarray  # i64 [entries]
    group: np.ndarray  # i64 [entries], index into `names`
    factor: np.ndarray  # f32 [entries]

    @classmethod
    def of(cls, tokens: pa.Table) -> Self:
        """Build the groups from token, kind and code of a vocab/1 table sorted by token id.

        With factor 1 every token but the specials belongs to its kind (if there are several kinds), a code to its
        `groups_of`, and a measured value to its item and its decile. A value also belongs to its item's slope with z
        and to its curve with z² - 1, where z is the decile's standard score: neighbouring deciles of an item are then
        similar, and a rare one is placed by the others.
        """
        values, places = MeasuredItems.of(tokens), dict[str, int]()
        entries: list[tuple[int, int, float]] = []
        kinds = set(tokens["kind"].to_pylist()) - {"SPECIAL"}
        kinds = kinds if len(kinds) > 1 else set()  # a group of every token carries no information
        codes = zip(tokens["kind"].to_pylist(), tokens["code"].to_pylist(), strict=True)
        for token, (kind, code) in enumerate(codes):
            shares = {f"kind {kind}": 1.0} if kind in kinds else {}
            if values.item[token] >= 0:
                shares |= _value_groups(values.items[values.item[token]], values.decile[token])
            else:
                shares |= dict.fromkeys(groups_of(kind, code), 1.0)
            entries += [
                (token, places.setdefault(name, len(places)), factor) for name, factor in shares.items()
            ]
        return cls(
            tuple(places),
            np.array([token for token, _, _ in entries], dtype=np.int64),
            np.array([group for _, group, _ in entries], dtype=np.int64),
            np.array([factor for _, _, factor in entries], dtype=np.float32),
        )


def _value_groups(item: str, decile: float) -> dict[str, float]:
    z = (decile - _MIDDLE) / _SPREAD
    return {f"item {item}": 1.0, f"decile {decile:.0f}": 1.0, f"slope {item}": z, f"curve {item}": z * z - 1}
