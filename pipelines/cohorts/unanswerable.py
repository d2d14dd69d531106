"""Refuses, with file and line, parts of a cohort that these data cannot answer, instead of an empty result."""

from collections.abc import Iterator

import polars as pl

from pipelines.cohorts.tables import Tables
from pipelines.events.split import BIRTH_DAYS_OF_TEST
from schemas.cohort import (
    AnyEncounter,
    Cohort,
    EncounterFilter,
    EncounterSeen,
    IndexAge,
    IndexIs,
    TimePoint,
    TimeTo,
    ToEncounter,
)
from schemas.cohort.document import FieldPath
from schemas.sources import sources
from schemas.suppress import suppress_count

Faults = Iterator[tuple[FieldPath, str]]


def refuse_unanswerable(cohort: Cohort, tables: Tables) -> None:
    """Raise CohortError with all parts that refer to empty columns or to another split of the patients."""
    for member in cohort.family:
        faults = [
            *_empty_filters(member, tables),
            *_unknown_births(member, tables),
            *_other_split(member, tables),
        ]
        if faults:
            raise member.faults(faults)


def _empty_filters(cohort: Cohort, tables: Tables) -> Faults:
    """Find filters on columns that are entirely empty."""
    empty = _empty_columns(tables.encounters) | _empty_columns(tables.subjects)
    for path, encounter_filter in filters(cohort):
        for column in encounter_filter.values:
            if column in empty:
                whose = "patient" if column == "sex" else "encounter"
                yield (
                    (*path, column),
                    f"every {whose}'s {column} is empty in these data; take this filter out",
                )


def _unknown_births(cohort: Cohort, tables: Tables) -> Faults:
    """Find times counted from birth if no birth date is known."""
    if "birth_date" not in _empty_columns(tables.subjects):
        return
    if cohort.index.age or cohort.index.keep.age:
        yield ("index",), "no birth date is known in these data; take 'age' and 'nearest' out"
    for path, condition in cohort.plain_conditions:
        if isinstance(condition, IndexAge):
            yield path, "no birth date is known in these data; take 'index_age' out"
    for path, time in _times(cohort):
        if time.anchor == "birth":
            yield path, "no birth date is known in these data; count from index.start or index.end"


def _other_split(cohort: Cohort, tables: Tables) -> Faults:
    """Find a split by day of birth that is not the split of the patients.

    A patient has one split for all tasks and for pretraining; the file states it and does not create it.
    """
    days = cohort.split.test_if_birth_day
    if days is None and not sources()[cohort.source].is_split_by_birth_day:
        return
    first, last = days or BIRTH_DAYS_OF_TEST
    by_birth = pl.col("birth_date").dt.day().is_between(first, last)
    counts = tables.subjects.select(
        known=pl.col("birth_date").count(), other=(by_birth != (pl.col("split") == "test")).sum()
    )
    num_births, num_mismatches = counts.collect().row(0)
    if days is None and num_births and not num_mismatches:
        days_of_test = f"test_if_birth_day: [{first}, {last}]"
        yield ("split",), f"the test split of these children is by day of birth; write '{days_of_test}'"
    if days is not None and (num_mismatches or not num_births):
        mismatches, births = suppress_count(num_mismatches, num_births), suppress_count(num_births)
        share = f"{mismatches} of {births} patients with a date of birth"
        yield (
            ("split",),
            f"the patients of these data are not split this way ({share} are in another split); "
            "write 'hash: [70, 15, 15]'",
        )


def filters(cohort: Cohort) -> Iterator[tuple[FieldPath, EncounterFilter]]:
    """Yield the filters of encounters in a file, each with its path."""
    yield ("index", "encounter"), cohort.index.encounter
    for path, condition in cohort.plain_conditions:
        if isinstance(condition, EncounterSeen):
            yield (*path, "any_encounter"), condition.any_encounter
        elif isinstance(condition, IndexIs):
            yield (*path, "index_is"), condition.index_is
    if isinstance(cohort.outcome, AnyEncounter):
        yield ("outcome", "any_encounter"), cohort.outcome.any_encounter
    if isinstance(cohort.outcome, TimeTo) and isinstance(cohort.outcome.time_to, ToEncounter):
        yield ("outcome", "time_to", "any_encounter"), cohort.outcome.time_to.any_encounter


def _times(cohort: Cohort) -> Iterator[tuple[FieldPath, TimePoint]]:
    for path, part in [(("outcome",), cohort.outcome), *cohort.plain_conditions]:
        for key in ("after", "before", "data_until", "until"):
            time = getattr(part, key, None)
            if isinstance(time, TimePoint):
                yield (*path, key), time


def _empty_columns(table: pl.LazyFrame) -> set[str]:
    """Return the columns that hold only nulls; none if the table has no rows."""
    counts = table.select(pl.len().alias("rows of the table"), pl.all().count()).collect().row(0, named=True)
    rows = counts.pop("rows of the table")
    return {name for name, count in counts.items() if rows and not count}
