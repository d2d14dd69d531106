"""Counts under 11 are withheld wherever they leave the data folder, and so is what would give them away.

Primary suppression hides the counts of 1 to 10; secondary suppression hides others with them, so that whoever adds up
what is shown, over all tables of a page, is left with every value from 1 to 10 for each of the hidden counts: the
protection interval of Fischetti and Salazar-González (2001), "Solving the cell suppression problem on tabular data with
linear constraints", Management Science 47(7). `tests/support/attacker.py` is that reader, as a linear programme.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

SMALLEST_SHOWN = 11
SMALL = f"< {SMALLEST_SHOWN}"
WITHHELD = "withheld"

_IS_PROTECTED: ContextVar[bool] = ContextVar("is_protected", default=True)


@contextmanager
def disclosing(is_synthetic: bool) -> Iterator[None]:
    """Show every count inside the block if the patients were made up here: nobody is there to protect.

    Without this block, and after it, counts are withheld.
    """
    token = _IS_PROTECTED.set(not is_synthetic)
    try:
        yield
    finally:
        _IS_PROTECTED.reset(token)


def is_small(count: int) -> bool:
    """Whether a count is 1 to 10 and of people to protect; 0 says nothing of anyone."""
    return _IS_PROTECTED.get() and 0 < count < SMALLEST_SHOWN


def shown(count: int) -> str:
    """Return a count as it may be shown: `< 11` for 1 to 10."""
    return SMALL if is_small(count) else f"{count:,}"


def shown_count(count: int, of: int | None = None) -> str:
    """Return a count as it may be shown; with `of`, its complement is guarded too: 274 of 275 is `> 264`."""
    if of is not None and count >= SMALLEST_SHOWN and is_small(of - count):
        return f"> {of - SMALLEST_SHOWN:,}"
    return shown(count)


def some_of(count: int, of: int) -> str:
    """Return roughly how many of a number that may itself be withheld, in words that tell neither."""
    if count == of:
        return "all"
    if not _IS_PROTECTED.get():
        return f"{count:,}"
    if is_small(count):
        return SMALL
    tenths = round(10 * count / of)
    if tenths == 10 or is_small(of - count):
        return "nearly all"
    return f"about {10 * tenths} % of the" if tenths else "fewer than 5 % of the"


def hidden_together(*tables: Mapping[str, int]) -> set[str]:
    """Return the names whose counts are withheld in all of several tables whose totals are shown.

    That is each name with a small count, and of the others the smallest, until in every table two or more are hidden
    whose sum leaves each of them every value from 1 to 10; where no sum does, all names.
    """
    first = tables[0]
    names = {name for name in first if any(is_small(table[name]) for table in tables)}
    if not names:
        return names
    large = sorted(first.keys() - names, key=lambda name: (first[name], name))
    for name in large:
        if all(_has_room(names, table) for table in tables):
            break
        if any(table[name] for table in tables):
            names.add(name)
    return names if all(_has_room(names, table) for table in tables) else set(first)


def _has_room(names: Collection[str], table: Mapping[str, int]) -> bool:
    total = sum(table[name] for name in names)
    return not total or (len(names) > 1 and total >= SMALLEST_SHOWN - 2 + len(names))


def shown_parts(parts: Mapping[str, int]) -> dict[str, str]:
    """Return the parts of a total that is shown beside them, so that none under 11 follows by subtraction."""
    nonzero = [name for name, count in parts.items() if count]
    if len(nonzero) == 1:  # it is the total
        return {name: shown(count) for name, count in parts.items()}
    to_withhold = hidden_together(parts)
    return {name: WITHHELD if name in to_withhold else f"{count:,}" for name, count in parts.items()}


def shown_share(count: int, of: int) -> str:
    """Return a count's share of `of` in per cent, or a dash where the count itself may not be shown."""
    return f"{count / of:.2%}" if of and shown_count(count, of) == f"{count:,}" else "–"
