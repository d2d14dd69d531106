"""A card's histograms, as bars to draw: counts of a step by bin, never a row."""

import re
from collections.abc import Mapping
from itertools import dropwhile

from schemas.suppress import suppress_parts

_BIN = re.compile(r"^(?P<what>\w+)\[(?P<low>\d+),(?P<high>\d+)\)$")


def bars_of(counts: Mapping[str, int], what: str) -> list[tuple[str, int | None]]:
    """Return the bins `what[low,high)` of a card as (low, count); None where a count is withheld."""
    found = {
        match["low"]: count
        for name, count in counts.items()
        if (match := _BIN.match(name)) and match["what"] == what
    }
    seen = suppress_parts(found)
    bars = [(low, count if seen[low] == f"{count:,}" else None) for low, count in found.items()]
    return list(dropwhile(lambda bar: bar[1] == 0, bars))
