"""Counts under 11 are withheld wherever they leave the data folder, and so is what would give them away."""

SMALLEST_SHOWN = 11


def shown(count: int) -> str:
    """Return a count as it may be shown: `< 11` for 1 to 10; 0 says nothing of anyone and stays."""
    return f"< {SMALLEST_SHOWN}" if 0 < count < SMALLEST_SHOWN else f"{count:,}"


def shown_count(count: int, of: int | None = None) -> str:
    """Return a count as it may leave the data folder, e.g. `0`, `< 11`, `> 264` (of 275), `1,204`.

    With `of`, the complement is guarded too: 274 of 275 would give a 1 away. None and all give nobody away.
    """
    if of is not None and count >= SMALLEST_SHOWN and 0 < of - count < SMALLEST_SHOWN:
        return f"> {of - SMALLEST_SHOWN:,}"
    return shown(count)


def shown_share(count: int, of: int) -> str:
    """Return a count's share of `of` in per cent, or a dash where the count itself may not be shown."""
    if of == 0 or shown_count(count, of) != f"{count:,}":
        return "–"
    return f"{count / of:.2%}"
