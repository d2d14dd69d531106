"""The attrition table of a cohort: complete in the data folder, and elsewhere with small counts withheld."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from schemas.io.verify import verified
from schemas.suppress import SMALL, SMALLEST_SHOWN, WITHHELD, is_small

HEADER = ("step", "index_rows", "patients", "dropped", "percent")


@dataclass(frozen=True)
class AttritionStep:
    """One row of the table: what remains after a step, and how many index rows it dropped."""

    step: str
    index_rows: int
    patients: int
    dropped: int

    @property
    def percent(self) -> float:
        """Return the dropped rows in percent of the rows before the step."""
        previous_rows = self.index_rows + self.dropped
        return 100 * self.dropped / previous_rows if previous_rows else 0.0

    def __add__(self, other: "AttritionStep") -> "AttritionStep":
        """Return the sum of one step over two disjoint groups of patients."""
        return AttritionStep(
            self.step,
            self.index_rows + other.index_rows,
            self.patients + other.patients,
            self.dropped + other.dropped,
        )


def attrition_csv(steps: Sequence[AttritionStep]) -> str:
    """Return the complete table as CSV, percent with two decimals; only for the data folder."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for row in steps:
        writer.writerow((row.step, row.index_rows, row.patients, row.dropped, f"{row.percent:.2f}"))
    return text.getvalue()


def read_attrition(path: Path) -> list[AttritionStep]:
    """Return the rows of an `attrition.csv`."""
    with verified(path).open(encoding="utf-8", newline="") as file:
        return [
            AttritionStep(row["step"], int(row["index_rows"]), int(row["patients"]), int(row["dropped"]))
            for row in csv.DictReader(file)
        ]


def suppress_attrition(steps: Sequence[AttritionStep]) -> list[dict[str, str]]:
    """Return the table in the form that may leave the data folder: the columns of HEADER as text.

    No count of 1 to 10 is disclosed or can be derived by a reader who knows this rule: a row is withheld if one of its
    counts is small or differs by 1 to 10 from the last disclosed row; dropped rows are disclosed only between two
    disclosed rows. `< 11` appears only directly after a disclosed row, and only if it leaves ten possibilities.
    """
    table: list[dict[str, str]] = []
    last: tuple[int, int] | None = None  # rows and patients of the last disclosed row
    previous_is_disclosed = True
    for row in steps:
        is_disclosed = _is_disclosable(row, last, first=not table)
        room = previous_is_disclosed and (last is None or _has_room(*last))
        table.append(_row_as_text(row, is_disclosed, exact=is_disclosed and previous_is_disclosed, room=room))
        last, previous_is_disclosed = ((row.index_rows, row.patients) if is_disclosed else last), is_disclosed
    return table


def _has_room(rows: int, patients: int) -> bool:
    """Return whether `< 11` after these counts leaves enough possibilities; patients never exceed rows."""
    ten_below = 2 * SMALLEST_SHOWN - 1
    return patients >= ten_below and (rows == patients or rows - patients >= ten_below)


def _is_disclosable(row: AttritionStep, last: tuple[int, int] | None, *, first: bool) -> bool:
    counts = (row.index_rows, row.patients)
    if last is None:
        return first and not any(map(is_small, counts))
    differences = (previous - now for previous, now in zip(last, counts, strict=True))
    return not any(map(is_small, (*counts, *differences)))


def _row_as_text(row: AttritionStep, is_disclosed: bool, *, exact: bool, room: bool) -> dict[str, str]:
    if is_disclosed:
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
