"""A fault of a cohort file: where it stands and how to mend it. All are collected, then shown together."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from schemas.errors import NestError


@dataclass(frozen=True, order=True)
class Fault:
    """One thing to mend: the line (from 1), the dotted path of keys ('' for the file) and the sentence."""

    line: int
    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class CohortError(NestError):
    """Every fault of one cohort file, one `file:line: key: what to do` each."""

    def __init__(self, file: str, faults: Iterable[Fault]) -> None:
        self.file = file
        self.faults = tuple(sorted(set(faults)))
        super().__init__("\n".join(f"{file}:{fault.line}: {fault}" for fault in self.faults))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'keep'?`, or `; known are …` where nothing is near. A part of a word is near."""
    choices = list(known)
    near = difflib.get_close_matches(word, choices, n=1)
    near = near or [choice for choice in choices if len(word) > 2 and word in choice]
    if near:
        return f"; did you mean '{near[0]}'?"
    return f"; known are {', '.join(choices)}" if choices else ""
