"""Counts with their nouns, and words at the start of a sentence."""

from schemas.suppress import WITHHELD


def with_noun(count: int | str, noun: str, plural: str = "") -> str:
    """Return a count and its noun in the number that goes with it: `1 patient`, `1,234 patients`, `< 11 patients`.

    Of a withheld count it is `a withheld number of patients`.

    Args:
        count: a number, or its text where it may be withheld.
        plural: the noun's plural where it is not made by adding an s.
    """
    text = count if isinstance(count, str) else f"{count:,}"
    if text == WITHHELD:
        return f"a withheld number of {plural or noun + 's'}"
    return f"{text} {noun if text == '1' else plural or noun + 's'}"


def with_capital(words: str) -> str:
    """Return words with a capital first letter, as a sentence begins; the other letters stay as they are."""
    return f"{words[:1].upper()}{words[1:]}"
