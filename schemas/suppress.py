"""Counts under 11 are withheld wherever they leave the data folder, and so is what would give them away."""

from collections.abc import Mapping

SMALLEST_SHOWN = 11
SMALL = f"< {SMALLEST_SHOWN}"
WITHHELD = "withheld"


def is_small(count: int) -> bool:
    """Whether a count is 1 to 10; 0 says nothing of anyone."""
    return 0 < count < SMALLEST_SHOWN


def shown(count: int) -> str:
    """Return a count as it may be shown: `< 11` for 1 to 10."""
    return SMALL if is_small(count) else f"{count:,}"


def shown_count(count: int, of: int | None = None) -> str:
    """Return a count as it may be shown; with `of`, its complement is guarded too: 274 of 275 is `> 264`."""
    if of is not None and count >= SMALLEST_SHOWN and is_small(of - count):
        return f"> {of - SMALLEST_SHOWN:,}"
    return shown(count)


def shown_parts(parts: Mapping[str, int]) -> dict[str, str]:
    """Return the parts of a total that is shown beside them, so that none under 11 follows by subtraction.

    One small part alone would be the total less the others: the smallest of those are withheld with it. So they
    are where the small parts' sum leaves them no room (all 1, or all 10).
    """
    small = {name for name, count in parts.items() if is_small(count)}
    large = [count for count in parts.values() if count >= SMALLEST_SHOWN]
    if not small or (len(small) == 1 and not large):
        return {name: shown(count) for name, count in parts.items()}
    total = sum(parts[name] for name in small)
    if len(small) > 1 and total not in (len(small), len(small) * (SMALLEST_SHOWN - 1)):
        return {name: shown(count) for name, count in parts.items()}
    hidden = small | {name for name, count in parts.items() if count == min(large, default=None)}
    return {name: WITHHELD if name in hidden else shown(count) for name, count in parts.items()}


def shown_share(count: int, of: int) -> str:
    """Return a count's share of `of` in per cent, or a dash where the count itself may not be shown."""
    return f"{count / of:.2%}" if of and shown_count(count, of) == f"{count:,}" else "–"
