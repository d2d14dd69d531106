"""How many index rows and patients each step leaves, counted from one boolean column per step."""

import polars as pl

from schemas.attrition import Step


def count_steps(rows: pl.DataFrame, start: str, steps: list[tuple[str, str]]) -> list[Step]:
    """Return the attrition of `steps` (name, boolean column) in order, the first row being all candidates."""
    found = [Step(start, rows.height, rows["subject_id"].n_unique(), 0)]
    for name, column in steps:
        left = rows.filter(pl.col(column))
        found.append(Step(name, left.height, left["subject_id"].n_unique(), rows.height - left.height))
        rows = left
    return found
