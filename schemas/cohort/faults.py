"""A fault of a cohort file: where it stands and how to mend it. All are collected, then shown together."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from schemas.errors import NestError


@dataclass(frozen=True, order=True)
class Fault:
    """One thing to mend: the line (from 1), the dotted path of keys ('' for the file) and the sentence."""

    line: int
    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


CANNOT_ANSWER = "these data cannot answer the cohort's file"
"""How a warning begins that is a fault of the file, found only with its data."""

MOST_LINES, MOST_LETTERS = 100, 500
"""What is printed of a file's faults, and of one: the rest of a file of 10,000 is not read either."""

MOST_CHOICES = 100
"""Words a misspelt one is compared with: each takes time, and a file may have thousands."""


class CohortError(NestError):
    """Every fault of one cohort file, one `file:line: key: what to do` each."""

    def __init__(self, file: str, faults: Iterable[Fault]) -> None:
        self.file = _printable(file)
        self.faults = tuple(sorted(set(faults)))
        lines = [f"{self.file}:{fault.line}: {_short(str(fault))}" for fault in self.faults[:MOST_LINES]]
        more = len(self.faults) - len(lines)
        super().__init__("\n".join([*lines, *([f"{self.file}: and {more:,} faults more"] if more else [])]))


def _printable(text: str) -> str:
    """Write what UTF-8 cannot hold, like half a surrogate pair, as an escape."""
    return text.encode("utf-8", "backslashreplace").decode()


def _short(text: str) -> str:
    text = _printable(text)
    return text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]} …"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'keep'?`, or `; known are …` where nothing is near. A part of a word is near."""
    choices = list(islice(known, MOST_CHOICES))
    near = difflib.get_close_matches(word, choices, n=1)
    near = near or [choice for choice in choices if len(word) > 2 and word in choice]
    if near:
        return f"; did you mean '{near[0]}'?"
    return f"; known are {', '.join(choices)}" if choices else ""
