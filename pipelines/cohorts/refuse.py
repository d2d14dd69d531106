"""What a cohort asks that these data cannot answer: refused with file and line, never answered with nothing."""

from collections.abc import Iterator

import polars as pl

from pipelines.cohorts.tables import Tables
from schemas.cohort import AnyEncounter, Cohort, EncounterFilter, EncounterSeen

SUPPORTED_SOURCES = ("mimic", "meds")

Path = tuple[str | int, ...]


def refuse_source(cohort: Cohort) -> None:
    """Raise CohortError where cohorts on the source are not derived yet."""
    if cohort.source not in SUPPORTED_SOURCES:
        supported = ", ".join(SUPPORTED_SOURCES)
        message = f"cohorts on '{cohort.source}' are not derived yet; supported: {supported}"
        raise cohort.fault(("source",), message)


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
