"""Withhold counts under 11, and the numbers that would reveal them, wherever counts leave the data folder.

Primary suppression withholds counts of 1 to 10. Secondary suppression withholds further counts, so that a reader who
adds up everything shown on a page can still not exclude any value from 1 to 10 for a withheld count: the protection
interval of Fischetti and Salazar-González (2001), "Solving the cell suppression problem on tabular data with linear
constraints", Management Science 47(7). `tests/support/attacker.py` implements that reader as a linear programme.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

SMALLEST_SHOWN = 11
SMALL = f"< {SMALLEST_SHOWN}"
WITHHELD = "withheld"

_IS_PROTECTED: ContextVar[bool] = ContextVar("is_protected", default=True)


@contextmanager
def disclosing(is_synthetic: bool) -> Iterator[None]:
    """Disclose every count inside the block if the patients are synthetic: there is nobody to protect.

    Outside such a block small counts are withheld.
    """
    token = _IS_PROTECTED.set(not is_synthetic)
    try:
        yield
    finally:
        _IS_PROTECTED.reset(token)


def is_disclosing() -> bool:
    """Return whether every count is disclosed here, see `disclosing`."""
    return not _IS_PROTECTED.get()


def is_small(count: int) -> bool:
    """Return whether a count is 1 to 10 and of real people; 0 reveals nothing about anyone."""
    return _IS_PROTECTED.get() and 0 < count < SMALLEST_SHOWN


def suppress_small(count: int) -> str:
    """Return a count as text, with `< 11` for 1 to 10."""
    return SMALL if is_small(count) else f"{count:,}"


def suppress_count(count: int, of: int | None = None) -> str:
    """Return a count as text, suppressed if small; with `of`, so is its complement: 274 of 275 is `> 264`."""
    if of is not None and count >= SMALLEST_SHOWN and is_small(of - count):
        return f"> {of - SMALLEST_SHOWN:,}"
    return suppress_small(count)


def suppress_fraction(count: int, of: int) -> str:
    """Return a count and what it is of as text, each suppressed: `12 of 363`, `< 11 of 363`, `< 11 of < 11`."""
    return f"{suppress_count(count, of)} of {suppress_count(of)}"


def vague_count(count: int, of: int) -> str:
    """Return a vague share of `of` in words that reveal neither number if either is withheld."""
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


def names_to_withhold(*tables: Mapping[str, int]) -> set[str]:
    """Return the names whose counts must be withheld in all of several tables whose totals are shown.

    These are the names with a small count, and then the smallest others, until every table has two or more withheld
    counts whose sum leaves each of them any value from 1 to 10; if that is never reached, all names.
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


def suppress_parts(parts: Mapping[str, int]) -> dict[str, str]:
    """Return the parts of a total that is shown beside them; no small part can be derived by subtraction."""
    nonzero = [name for name, count in parts.items() if count]
    if len(nonzero) == 1:  # the only part equals the total
        return {name: suppress_small(count) for name, count in parts.items()}
    to_withhold = names_to_withhold(parts)
    return {name: WITHHELD if name in to_withhold else f"{count:,}" for name, count in parts.items()}


def suppress_share(count: int, of: int) -> str:
    """Return a count's share of `of` in per cent, or a dash if the count itself must be suppressed."""
    return f"{count / of:.2%}" if of and suppress_count(count, of) == f"{count:,}" else "–"


def shown_fraction(value: float) -> float:
    """Return a fraction with four significant digits, and a whole number as it is.

    The more digits a fraction has, the fewer numbers can it be a fraction of, and their number may be withheld.
    """
    return float(value) if float(value).is_integer() else float(f"{value:.4g}")


SCORE_KEYS = frozenset({"value", "low", "high", "sd"})
"""The keys of a score in the content of a page: itself, its interval, and its deviation over seeds."""


def shown_scores(content: Any) -> Any:
    """Return the content of a page with the three decimals of each score that the page shows, unless disclosed."""
    if is_disclosing():
        return content
    if isinstance(content, Mapping):
        return {
            name: round(value, 3) if name in SCORE_KEYS and isinstance(value, float) else shown_scores(value)
            for name, value in content.items()
        }
    if isinstance(content, Sequence) and not isinstance(content, str):
        return [shown_scores(value) for value in content]
    return content
