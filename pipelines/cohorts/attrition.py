"""How many index rows and patients each step leaves, counted from one boolean column per step."""

from dataclasses import dataclass

import polars as pl

HEADER = ("step", "index_rows", "patients", "dropped", "percent")


@dataclass(frozen=True)
class Step:
    """One row of the attrition table: what remains after it, and the rows it took."""

    step: str
    index_rows: int
    patients: int
    dropped: int

    @property
    def percent(self) -> float:
        """Dropped, in percent of the rows before the step."""
        before = self.index_rows + self.dropped
        return 100 * self.dropped / before if before else 0.0


def count_steps(rows: pl.DataFrame, start: str, steps: list[tuple[str, str]]) -> list[Step]:
    """Return the attrition of `steps` (name, boolean column) in order, the first row being all candidates."""
    found = [Step(start, rows.height, rows["subject_id"].n_unique(), 0)]
    for name, column in steps:
        left = rows.filter(pl.col(column))
        found.append(Step(name, left.height, left["subject_id"].n_unique(), rows.height - left.height))
        rows = left
    return found


def to_csv(steps: list[Step]) -> str:
    """Return the table as CSV; percent with two decimals."""
    table = pl.DataFrame(
        [(row.step, row.index_rows, row.patients, row.dropped, f"{row.percent:.2f}") for row in steps],
        schema=list(HEADER),
        orient="row",
    )
    return table.write_csv()
