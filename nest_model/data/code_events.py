"""Events whose time a model can learn to tell: codes, and groups of codes that mean much the same."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pyarrow as pa

from nest_model.data.measured import MeasuredItems
from schemas.tables.events import CODED_AT_THE_END
from schemas.tables.vocab import SPECIAL_KIND, SPECIALS

_CATEGORY = 3  # characters of an ICD-10 category, and of a procedure's section, body system and operation
_ATC_LEVELS = (1, 3, 4, 5, 7)


def events_of(kind: str, code: str | None) -> list[str]:
    """Return the events that a code belongs to, the finest first.

    A diagnosis is itself and its ICD-10 category, a procedure its first three characters, a drug each of its ATC
    levels; other kinds are none.
    """
    if not code:
        return []
    if kind == "DX":
        parts = [code, code[:_CATEGORY]]
    elif kind == "PR":
        parts = [code[:_CATEGORY]]
    elif kind == "MED":
        # an RxNorm code says nothing about related drugs
        parts = [code] if code.startswith("RX") else [code[:length] for length in reversed(_ATC_LEVELS)]
    else:
        parts = []
    return list(dict.fromkeys(f"{kind} {part}" for part in parts))


@dataclass(frozen=True)
class CodeEvents:
    """The events that each token of a vocabulary belongs to: entries sorted by token.

    A token is coded late if its kind is known only at the end of a set, whatever hour is recorded.
    """

    names: tuple[str, ...]
    offsets: np.ndarray  # i64 [tokens + 1], the entries of each token
    event: np.ndarray  # i64 [entries], index into `names`
    is_coded_late: np.ndarray  # bool [tokens]
    other_kinds: tuple[str, ...]  # kinds of the vocabulary of which no token belongs to an event

    @classmethod
    def of(cls, tokens: pa.Table) -> Self:
        """Build the events from token, kind and code of a vocab/1 table sorted by token id.

        Of events with the same tokens the finest is kept. A vocabulary without diagnoses, procedures and drugs, such
        as a shop's, has an event for each of its tokens, and one for all values of a measured item.
        """
        kinds, codes = tokens["kind"].to_pylist(), tokens["code"].to_pylist()
        names = [events_of(kind, code) for kind, code in zip(kinds, codes, strict=True)]
        if not any(names):
            names = _every_token(tokens)
        kinds_with_events = {kind for kind, of_token in zip(kinds, names, strict=True) if of_token}
        members: dict[str, list[int]] = {}
        for token, of_token in enumerate(names):
            for name in of_token:
                members.setdefault(name, []).append(token)
        distinct = {tuple(of_event): name for name, of_event in reversed(members.items())}
        places = {name: place for place, name in enumerate(reversed(distinct.values()))}
        entries = [[places[name] for name in of_token if name in places] for of_token in names]
        lengths = np.array([len(places_of_token) for places_of_token in entries], dtype=np.int64)
        return cls(
            tuple(places),
            np.concatenate([[0], lengths.cumsum()]),
            np.array([place for of_token in entries for place in of_token], dtype=np.int64),
            np.array([kind in CODED_AT_THE_END for kind in kinds]),
            tuple(sorted({*kinds} - kinds_with_events - {SPECIAL_KIND})),
        )

    def select(self, events: np.ndarray) -> Self:
        """Return some of the events, i64 [n], numbered from 0 in this order."""
        number = np.full(len(self.names), -1)
        number[events] = np.arange(len(events))
        is_kept = number[self.event] >= 0
        kept_before = np.concatenate([[0], is_kept.cumsum()])
        return replace(
            self,
            names=tuple(self.names[event] for event in events),
            offsets=kept_before[self.offsets],
            event=number[self.event[is_kept]],
        )


def _every_token(tokens: pa.Table) -> list[list[str]]:
    measurements = MeasuredItems.of(tokens)
    names = [
        measurements.items[item] if item >= 0 else token
        for token, item in zip(tokens["token"].to_pylist(), measurements.item, strict=True)
    ]
    return [[name] if token >= len(SPECIALS) else [] for token, name in enumerate(names)]
