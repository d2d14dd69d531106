"""Faults of a cohort file: each says where it is and how to fix it; all are collected and reported together."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from schemas.errors import NestError
from schemas.nouns import with_noun


@dataclass(frozen=True, order=True)
class Fault:
    """One thing to fix: its line (from 1), the dotted path of keys ('' for the whole file) and a message."""

    line: int
    key_path: str
    message: str

    def __str__(self) -> str:
        return f"{self.key_path}: {self.message}" if self.key_path else self.message


CANNOT_ANSWER = "the data cannot answer this cohort file"
"""The start of a warning about a fault that shows only when the file is run on the data."""

MAX_LINES, MAX_CHARACTERS = 100, 500
"""Limits on the printed faults of a file, and on the length of each: nobody reads 10,000 of them."""

MAX_CHOICES = 100
"""Maximum number of words a misspelt one is compared with: a file may have thousands, and each takes time."""


class CohortError(NestError):
    """All faults of one cohort file, one line `file:line: key: message` each."""

    def __init__(self, file: str, faults: Iterable[Fault]) -> None:
        self.file = _printable(file)
        self.faults = tuple(sorted(set(faults)))
        lines = [f"{self.file}:{fault.line}: {_short(str(fault))}" for fault in self.faults[:MAX_LINES]]
        num_omitted = len(self.faults) - len(lines)
        super().__init__(
            "\n".join(
                [
                    *lines,
                    *([f"{self.file}: and {with_noun(num_omitted, 'more fault')}"] if num_omitted else []),
                ]
            )
        )


def _printable(text: str) -> str:
    """Return a text in which characters that UTF-8 cannot encode, such as lone surrogates, are escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


def _short(text: str) -> str:
    text = _printable(text)
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]} …"


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return `; did you mean 'keep'?`, or `; choose from …` if no word is near."""
    choices = list(islice(words, MAX_CHOICES))
    if near := near_word(word, choices):
        return f"; did you mean '{near}'?"
    return f"; choose from {', '.join(choices)}" if choices else ""


def near_word(word: str, words: Iterable[str]) -> str | None:
    """Return the nearest of these words to a misspelt one, or None. A word that contains it counts as near."""
    choices = list(islice(words, MAX_CHOICES))
    near = difflib.get_close_matches(word, choices, n=1)
    near = near or [choice for choice in choices if len(word) > 2 and word in choice]
    return near[0] if near else None
