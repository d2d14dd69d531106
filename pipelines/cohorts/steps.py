"""The steps from all encounters to the index rows of a cohort: one boolean column each, counted in one pass."""

from dataclasses import replace

import polars as pl

from pipelines.cohorts.candidates import KEY, candidates, time_of
from pipelines.cohorts.conditions import add_condition, is_of_age, mark, stays_of
from pipelines.cohorts.tables import Tables
from schemas.cohort import Cohort, EncounterFilter, IndexLongerThan, Keep, TimePoint
from schemas.tables.attrition import AttritionStep

START = "all encounters"


class Steps:
    """Candidates with one boolean column per step."""

    def __init__(self, rows: pl.LazyFrame) -> None:
        self.rows = rows
        self._columns: dict[str, str] = {}
        self._lenient: dict[str, str] = {}

    @property
    def next_column(self) -> str:
        return f"step_{len(self._columns)}"

    def add(self, name: str, rows: pl.LazyFrame, *, drops: bool = True) -> None:
        """Replace the rows by `rows`, which have the column of the next step; null counts as false.

        With `drops=False` the step keeps every row, and the rows it would have dropped are counted.
        """
        if name in self._columns:
            name = f"{name} ({len(self._columns)})"
        column = self.next_column
        holds = pl.col(column).fill_null(False)
        if not drops:
            rows = rows.with_columns((~holds).alias(f"fails_{column}"))
            self._lenient[name] = f"fails_{column}"
            holds = pl.lit(True)
        self.rows = rows.with_columns(holds.alias(column))
        self._columns[name] = column

    def add_expr(self, name: str, holds: pl.Expr, *, drops: bool = True) -> None:
        """Add a step that is an expression over the candidates."""
        self.add(name, self.rows.with_columns(holds.alias(self.next_column)), drops=drops)

    @property
    def passes_all(self) -> pl.Expr:
        return pl.all_horizontal([pl.lit(True), *map(pl.col, self._columns.values())])

    def count(self, rows: pl.DataFrame) -> list[AttritionStep]:
        """Return the attrition table of the collected rows."""
        steps = [AttritionStep(START, rows.height, rows["subject_id"].n_unique(), 0)]
        for name, column in self._columns.items():
            passing_rows = rows.filter(pl.col(column))
            steps.append(
                AttritionStep(
                    name,
                    passing_rows.height,
                    passing_rows["subject_id"].n_unique(),
                    rows.height - passing_rows.height,
                )
            )
            rows = passing_rows
        return steps

    def count_lenient(self, rows: pl.DataFrame) -> dict[str, int]:
        """Return for each step with `drops=False` how many of the kept rows it would have dropped."""
        return {name: int(rows[column].sum()) for name, column in self._lenient.items()}


def add_index_steps(steps: Steps, cohort: Cohort, tables: Tables) -> None:
    """Add the index steps in order: filter, end of stay, dates, age, keep."""
    index = cohort.index
    if index.encounter != EncounterFilter():
        matches = stays_of(tables.encounters_of(index.encounter))
        steps.add("matches the index filter", mark(steps.rows, matches, steps.next_column))
    steps.add_expr("has an end after its start", pl.col("end").is_not_null())
    if index.from_ is not None:
        steps.add_expr(f"from {index.from_}", pl.col("start") >= pl.lit(index.from_).cast(pl.Datetime("us")))
    if index.to is not None:
        next_day = pl.lit(index.to).cast(pl.Datetime("us")).dt.offset_by("1d")
        steps.add_expr(f"to {index.to}", pl.col("start") < next_day)
    if index.age is not None:
        steps.add_expr(f"age {index.age[0]} to {index.age[1]}", is_of_age(*index.age))
    if index.keep.rule != "every":
        steps.add(f"keep {index.keep}", _keep_one(steps, index.keep))


def add_requirements(steps: Steps, cohort: Cohort, tables: Tables, *, lenient: bool) -> None:
    """Add the requirements in order; with `lenient`, `index_longer_than` drops no rows.

    Without it, codes of a stay count only if they are known at the prediction, except those named in `looks_ahead`.
    """
    is_by_the_end = cohort.predict_at.anchor == "index.end"
    for name, condition in cohort.requirements:
        sees_codes = lenient or is_by_the_end or name in (cohort.looks_ahead or ())
        tables = replace(tables, sees_codes=sees_codes)
        rows = add_condition(steps.rows, condition, tables, steps.next_column)
        steps.add(name, rows, drops=not (lenient and isinstance(condition, IndexLongerThan)))


def index_steps(cohort: Cohort, tables: Tables, *, lenient: bool) -> Steps:
    """Return the candidates with the steps of `index` and `require`, for which the cohorts they name come first."""
    members = {
        name: _members(inner, tables.of(inner), lenient=lenient) for name, inner in cohort.inner.items()
    }
    tables = replace(tables, members=members)
    steps = Steps(candidates(tables.subjects, tables.encounters, cohort.predict_at, tables.end_of_data))
    add_index_steps(steps, cohort, tables)
    add_requirements(steps, cohort, tables, lenient=lenient)
    return steps


def _members(cohort: Cohort, tables: Tables, *, lenient: bool) -> pl.LazyFrame:
    """Return the candidates that pass `index` and `require`."""
    steps = index_steps(cohort, tables, lenient=lenient)
    return steps.rows.filter(steps.passes_all).select(*KEY)


def _keep_one(steps: Steps, keep: Keep) -> pl.LazyFrame:
    """Flag the first remaining candidate of each subject, or the nearest to an age (ties: the earlier)."""
    distance = pl.lit(0)
    if keep.age is not None:
        distance = (pl.col("start") - time_of(TimePoint("birth", 1, keep.age))).abs()
    choices = (
        steps.rows.filter(steps.passes_all)
        .with_columns(near=distance)
        .filter(pl.col("near").is_not_null())
        .sort("near", "start", "index_encounter")
        .unique("subject_id", keep="first", maintain_order=True)
    )
    return mark(steps.rows, choices, steps.next_column)
