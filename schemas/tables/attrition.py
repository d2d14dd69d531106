"""The attrition table of a cohort: written beside its labels in full, shown elsewhere with small counts withheld."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from schemas.io.verify import verified
from schemas.suppress import SMALL, SMALLEST_SHOWN, WITHHELD, is_small

HEADER = ("step", "index_rows", "patients", "dropped", "percent")


@dataclass(frozen=True)
class Step:
    """One row of the table: what remains after a step, and the index rows it took."""

    step: str
    index_rows: int
    patients: int
    dropped: int

    @property
    def percent(self) -> float:
        """Dropped, in percent of the rows before the step."""
        previous_rows = self.index_rows + self.dropped
        return 100 * self.dropped / previous_rows if previous_rows else 0.0

    def __add__(self, other: "Step") -> "Step":
        """Return the same step of both's patients together, none of whom is in both."""
        return Step(
            self.step,
            self.index_rows + other.index_rows,
            self.patients + other.patients,
            self.dropped + other.dropped,
        )


def attrition_csv(steps: Sequence[Step]) -> str:
    """Return the table in full as CSV; percent with two decimals. For the data folder alone."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for row in steps:
        writer.writerow((row.step, row.index_rows, row.patients, row.dropped, f"{row.percent:.2f}"))
    return text.getvalue()


def read_attrition(path: Path) -> list[Step]:
    """Return the rows of an `attrition.csv`."""
    with verified(path).open(encoding="utf-8", newline="") as file:
        return [
            Step(row["step"], int(row["index_rows"]), int(row["patients"]), int(row["dropped"]))
            for row in csv.DictReader(file)
        ]


def shown_attrition(steps: Sequence[Step]) -> list[dict[str, str]]:
    """Return the table as it may leave the data folder: HEADER's columns as text.

    No count of 1 to 10 is shown, and none can be worked out by one who knows this rule: a row is withheld if one of
    its counts is small, or differs by 1 to 10 from the last row shown; what a step dropped is shown only between
    two rows that are. `< 11` is said of what is left only right after a row shown, where it leaves ten possibilities.
    """
    table: list[dict[str, str]] = []
    last: tuple[int, int] | None = None  # of the last row shown
    before_is_shown = True
    for row in steps:
        is_shown = _may_be_shown(row, last, first=not table)
        room = before_is_shown and (last is None or _has_room(*last))
        table.append(_shown_row(row, is_shown, exact=is_shown and before_is_shown, room=room))
        last, before_is_shown = ((row.index_rows, row.patients) if is_shown else last), is_shown
    return table


def _has_room(rows: int, patients: int) -> bool:
    """Whether `< 11` after these counts leaves enough possibilities, patients never being more than rows."""
    ten_below = 2 * SMALLEST_SHOWN - 1
    return patients >= ten_below and (rows == patients or rows - patients >= ten_below)


def _may_be_shown(row: Step, last: tuple[int, int] | None, *, first: bool) -> bool:
    counts = (row.index_rows, row.patients)
    if last is None:
        return first and not any(map(is_small, counts))
    differences = (previous - now for previous, now in zip(last, counts, strict=True))
    return not any(map(is_small, (*counts, *differences)))


def _shown_row(row: Step, is_shown: bool, *, exact: bool, room: bool) -> dict[str, str]:
    if is_shown:
        rows, patients = f"{row.index_rows:,}", f"{row.patients:,}"
    else:
        rows = patients = SMALL if room and is_small(row.index_rows) else WITHHELD
    return {
        "step": row.step,
        "index_rows": rows,
        "patients": patients,
        "dropped": f"{row.dropped:,}" if exact else WITHHELD,
        "percent": f"{row.percent:.2f}" if exact else "",
    }
