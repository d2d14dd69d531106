"""What may become of a bad input: the clean result, the clean result with drops counted, or one message."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.bad_inputs.damage import Damage, nothing

RESULTS = ("subjects", "encounters", "events", "vocab", "shards", "labels")


@dataclass(frozen=True)
class Same:
    """The bytes of the clean run, or of a run on the clean input after the harmless change `as_if`."""

    as_if: Damage = nothing
    results: tuple[str, ...] = RESULTS  # what is compared


@dataclass(frozen=True)
class Counted:
    """As `Same`, and exactly so many more rows under one name on one card than without the damage.

    `where` is step, table, and `dropped`, `noted` or `counts`.
    """

    where: tuple[str, str, str]
    reason: str
    count: int
    as_if: Damage = nothing
    results: tuple[str, ...] = RESULTS


@dataclass(frozen=True)
class Derived:
    """What the naive derivation gives from the same input, token by token: not the clean result, but right."""


@dataclass(frozen=True)
class Refused:
    """One message of one line: the file, the column and how many of its rows where that can be said, and the mend."""

    says: str  # a regular expression
    mend: str
    column: str | None = None
    count: int | None = None
    of: int | None = None  # rows in all; None: as many as the clean table has
    file: str | None = None  # as the message names it; None: the table's name
    after: str = (
        "raw"  # the last step whose output is of the bad input: whole, and before the fault could be seen
    )


Outcome = Same | Counted | Derived | Refused


@dataclass(frozen=True)
class Case:
    """One bad input, what must become of it, and why that and nothing else."""

    name: str
    table: str
    damage: Damage
    outcome: Outcome
    why: str
    is_quick: bool = field(default=False, kw_only=True)  # in the everyday sample
    during: Callable[..., object] | None = field(default=None, kw_only=True)  # a context the run happens in
