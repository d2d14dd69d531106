"""Outcomes of a bad input: the clean result, the clean result with counted drops, or one message."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.bad_inputs.damage import Damage, nothing

RESULTS = ("subjects", "encounters", "events", "vocab", "shards", "labels")


@dataclass(frozen=True)
class SameResult:
    """The same bytes as the clean run, or as a run on the clean input after the harmless change `as_if`."""

    as_if: Damage = nothing
    results: tuple[str, ...] = RESULTS  # kinds of files that are compared


@dataclass(frozen=True)
class CountedResult:
    """As `SameResult`, and exactly `count` more rows of one reason on one card than without the damage.

    `location` is step, table, and `dropped`, `noted` or `counts`.
    """

    location: tuple[str, str, str]
    reason: str
    count: int
    as_if: Damage = nothing
    results: tuple[str, ...] = RESULTS


@dataclass(frozen=True)
class ReferenceResult:
    """The result of the naive reference derivation from the same input, token by token."""


@dataclass(frozen=True)
class Refusal:
    """A one-line message with the file, the column and number of rows if known, and what to do."""

    says: str  # a regular expression
    mend: str
    column: str | None = None
    count: int | None = None
    of: int | None = None  # total number of rows; None: as in the clean table
    file: str | None = None  # name in the message; None: the name of the table
    # the last step that succeeds on the bad input, before the fault can be detected
    last_step: str = "raw"


Outcome = SameResult | CountedResult | ReferenceResult | Refusal


@dataclass(frozen=True)
class Case:
    """One bad input, its required outcome and the reason for that outcome."""

    name: str
    table: str
    damage: Damage
    outcome: Outcome
    reason: str
    is_quick: bool = field(default=False, kw_only=True)  # part of the quick sample
    during: Callable[..., object] | None = field(default=None, kw_only=True)  # context manager around the run
