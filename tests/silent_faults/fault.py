"""Define silent faults: the damage, the code that meets it next, and the check or refusal that must catch it.

To add faults, write a list `FAULTS` in a module of your area beside this one, list the module in `faults.py`, and
regenerate the page with `python -m tests.silent_faults`. `chain.py` has functions to damage an input and to run assets.
"""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

Place = Literal["input", "output", "code", "model", "cohort", "surroundings"]


@dataclass(frozen=True)
class Sandbox:
    """A folder with an input (`raw/hosp`, `raw/vocab`) and, if copied from a clean run, its `data`."""

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
    """The findings of a run: failed rules and checks by asset, and the message of each step that refused."""

    rules: set[tuple[str, str]] = field(default_factory=set)  # asset, name of the expectation
    checks: set[tuple[str, str]] = field(default_factory=set)  # asset, name of the check
    oddities: dict[str, str] = field(default_factory=dict)  # asset, the sentences of `nothing_odd`
    refusals: dict[str, str] = field(default_factory=dict)  # asset or command, its message


class Catch(Protocol):
    """The check or refusal that must catch a fault."""

    def notices(self, findings: Findings) -> bool: ...

    @property
    def words(self) -> str: ...


@dataclass(frozen=True)
class Expectation:
    """An expectation on the table of an asset."""

    asset: str
    rule: str

    def notices(self, findings: Findings) -> bool:
        return (self.asset, self.rule) in findings.rules

    @property
    def words(self) -> str:
        return f"`{self.asset}`: {self.rule.replace('_', ' ')}"


@dataclass(frozen=True)
class Check:
    """A check of an asset other than its expectations."""

    asset: str
    check: str

    def notices(self, findings: Findings) -> bool:
        return (self.asset, self.check) in findings.checks

    @property
    def words(self) -> str:
        return f"`{self.asset}`: check `{self.check}`"


@dataclass(frozen=True)
class Oddity:
    """A warning of an asset (its check `nothing_odd`)."""

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


Damage = Callable[[Sandbox], AbstractContextManager[object] | None]
"""A function that damages the files of a sandbox, or returns a context in which the code is damaged."""
Use = Callable[[Sandbox], Findings]
"""A function that runs the code that meets the fault; on an undamaged sandbox the catch must be silent."""


@dataclass(frozen=True)
class SilentFault:
    """One fault that would silently change a result without its catch.

    `use` runs twice: on an undamaged copy, where `caught_by` must be silent, and on a damaged one, where it must
    report. So a catch that always, never or only sometimes reports fails the test.
    """

    name: str
    place: Place
    damage: Damage
    use: Use
    caught_by: Catch
    is_quick: bool = field(default=False, kw_only=True)  # part of the quick sample
