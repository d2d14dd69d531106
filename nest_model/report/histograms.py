"""Histograms of a step card as bars: counts by bin, never rows."""

import re
from collections.abc import Mapping
from itertools import dropwhile

from schemas.suppress import suppress_parts

_BIN = re.compile(r"^(?P<prefix>\w+)\[(?P<low>\d+),(?P<high>\d+)\)$")


def histogram_bars(counts: Mapping[str, int], prefix: str) -> list[tuple[str, int | None]]:
    """Return the bins `prefix[low,high)` of a card as (low, count); None where a count is withheld."""
    counts_by_bin = {
        match["low"]: count
        for name, count in counts.items()
        if (match := _BIN.match(name)) and match["prefix"] == prefix
    }
    texts = suppress_parts(counts_by_bin)
    bars = [(low, count if texts[low] == f"{count:,}" else None) for low, count in counts_by_bin.items()]
    return list(dropwhile(lambda bar: bar[1] == 0, bars))


def histograms(counts: Mapping[str, int]) -> dict[str, list[tuple[str, int | None]]]:
    """Return the bars of the shards' histograms from the counts of their card."""
    names = ("sets_per_subject", "tokens_per_subject", "tokens_per_set")
    return {name: histogram_bars(counts, name) for name in names}
