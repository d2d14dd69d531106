"""Counts with their nouns, as sentences have them."""


def with_noun(count: int | str, noun: str, plural: str = "") -> str:
    """Return a count and its noun in the number that goes with it: `1 patient`, `1,234 patients`, `< 11 patients`.

    Args:
        count: a number, or its text where it may be withheld.
        plural: the noun's plural where it is not made by adding an s.
    """
    text = count if isinstance(count, str) else f"{count:,}"
    return f"{text} {noun if text == '1' else plural or noun + 's'}"
