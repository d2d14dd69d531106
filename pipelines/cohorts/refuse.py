"""What a cohort asks that these data cannot answer: refused with file and line, never answered with nothing."""

from collections.abc import Iterator

import polars as pl

from pipelines.cohorts.tables import Tables
from schemas.cohort import AnyEncounter, Cohort, EncounterFilter, EncounterSeen
from schemas.suppress import shown_count

Path = tuple[str | int, ...]


def refuse_empty_columns(cohort: Cohort, tables: Tables) -> None:
    """Raise CohortError where a filter looks at a column that holds nothing at all."""
    empty = _empty_columns(tables.encounters)
    for path, wanted in _filters(cohort):
        for column in ("type", "discharge_status"):
            if getattr(wanted, column) is not None and column in empty:
                message = f"every encounter's {column} is empty in these data; take this filter out"
                raise cohort.fault((*path, column), message)
    if "birth_date" in _empty_columns(tables.subjects) and (cohort.index.age or cohort.index.keep.age):
        raise cohort.fault(("index",), "no birth date is known in these data; take 'age' and 'nearest' out")


def refuse_other_split(cohort: Cohort, tables: Tables) -> None:
    """Raise CohortError where the patients of these data are not split by the days of birth the file says.

    A patient has one split for every task and the pretraining; the file says which it is, it does not make it.
    """
    days = cohort.split.test_if_birth_day
    if days is None:
        return
    by_birth = pl.col("birth_date").dt.day().is_between(*days)
    counts = tables.subjects.select(
        known=pl.col("birth_date").count(), other=(by_birth != (pl.col("split") == "test")).sum()
    )
    known, other = counts.collect().row(0)
    if other or not known:
        many = f"{shown_count(other, known)} of {shown_count(known)} patients with a date of birth are split otherwise"
        message = f"the patients of these data are not split so ({many}); write 'hash: [70, 15, 15]'"
        raise cohort.fault(("split",), message)


def _filters(cohort: Cohort) -> Iterator[tuple[Path, EncounterFilter]]:
    yield ("index", "encounter"), cohort.index.encounter
    for place, item in enumerate(cohort.require):
        for name, condition in item.items():
            if isinstance(condition, EncounterSeen):
                yield ("require", place, name, "any_encounter"), condition.any_encounter
    if isinstance(cohort.outcome, AnyEncounter):
        yield ("outcome", "any_encounter"), cohort.outcome.any_encounter


def _empty_columns(table: pl.LazyFrame) -> set[str]:
    """Return the columns without a single value; none of a table without rows."""
    counts = table.select(pl.len().alias("rows of the table"), pl.all().count()).collect().row(0, named=True)
    rows = counts.pop("rows of the table")
    return {name for name, count in counts.items() if rows and not count}
