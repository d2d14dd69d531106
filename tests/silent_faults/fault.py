"""What a silent fault is: the harm done, who meets it next, and the one named check or refusal that must catch it.

To add faults: write a list `FAULTS` in a file of your area beside this one, name it in `faults.py`, and write the page
anew with `python -m tests.silent_faults`. `chain.py` has the ways to harm an input and to run what meets the fault.
"""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

Place = Literal["input", "output", "code", "model", "cohort", "surroundings"]


@dataclass(frozen=True)
class World:
    """A folder with an input (`raw/hosp`, `raw/vocab`) and, where a clean run has been copied, its `data`."""

    folder: Path

    @property
    def raw(self) -> Path:
        return self.folder / "raw"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def mimic(self) -> Path:
        return self.data / "mimic"


@dataclass
class Findings:
    """All that a run had to say: failed rules and checks by asset, and the message of each step that refused."""

    rules: set[tuple[str, str]] = field(default_factory=set)  # asset, name of the expectation
    checks: set[tuple[str, str]] = field(default_factory=set)  # asset, name of the check
    oddities: dict[str, str] = field(default_factory=dict)  # asset, the sentences of `nothing_odd`
    refusals: dict[str, str] = field(default_factory=dict)  # asset or command, its message


class Catch(Protocol):
    """Who must notice."""

    def notices(self, findings: Findings) -> bool: ...

    @property
    def words(self) -> str: ...


@dataclass(frozen=True)
class Expectation:
    """A named expectation of the suite of one asset's table."""

    asset: str
    rule: str

    def notices(self, findings: Findings) -> bool:
        return (self.asset, self.rule) in findings.rules

    @property
    def words(self) -> str:
        return f"`{self.asset}`: {self.rule.replace('_', ' ')}"


@dataclass(frozen=True)
class Check:
    """A check of its own of one asset."""

    asset: str
    check: str

    def notices(self, findings: Findings) -> bool:
        return (self.asset, self.check) in findings.checks

    @property
    def words(self) -> str:
        return f"`{self.asset}`: check `{self.check}`"


@dataclass(frozen=True)
class Oddity:
    """A sentence among an asset's warnings (its check `nothing_odd`)."""

    asset: str
    pattern: str

    def notices(self, findings: Findings) -> bool:
        return bool(re.search(self.pattern, findings.oddities.get(self.asset, "")))

    @property
    def words(self) -> str:
        return f"`{self.asset}`: a warning"


@dataclass(frozen=True)
class Refusal:
    """A step or command that stops with a message; `by` is the asset or the command."""

    by: str
    pattern: str

    def notices(self, findings: Findings) -> bool:
        return bool(re.search(self.pattern, findings.refusals.get(self.by, "")))

    @property
    def words(self) -> str:
        return f"refused by `{self.by}`"


Damage = Callable[[World], AbstractContextManager[object] | None]
"""Harms the files of a world, or returns a context in which the code is harmed."""
Use = Callable[[World], Findings]
"""Whatever meets the fault next; on an unharmed world the catch must be silent."""


@dataclass(frozen=True)
class Fault:
    """One fault, that without its catch would change a number without a word.

    `use` is run twice: on an unharmed copy, where `caught_by` must say nothing, and on a harmed one, where it must
    speak. So a catch that is always, never or only by chance heard fails the test.
    """

    name: str
    place: Place
    damage: Damage
    use: Use
    caught_by: Catch
    is_quick: bool = field(default=False, kw_only=True)  # in the everyday sample
