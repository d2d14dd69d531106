"""Evaluates each requirement of the cohort language as a boolean column over candidates."""

from collections.abc import Callable
from typing import Any

import polars as pl

from pipelines.cohorts.candidates import KEY, time_of
from pipelines.cohorts.tables import Tables, encounter_starts, event_times, within_window
from pipelines.cohorts.values import values_meeting
from schemas.cohort import (
    AllOf,
    AnyOf,
    DataUntil,
    Duration,
    EncounterSeen,
    EventNotSeen,
    EventSeen,
    InCohort,
    IndexAge,
    IndexAlive,
    IndexHas,
    IndexIs,
    IndexLongerThan,
    IndexWithout,
    LabSeen,
    Not,
    SomeOf,
    TimePoint,
)
from schemas.cohort.combinations import parts_of

Candidates = pl.LazyFrame

CODED_KINDS = ("DX", "PR")
"""The kinds of events that are coded when their stay ends, and dated in it."""


def add_condition(rows: pl.LazyFrame, condition: Any, tables: Tables, column: str) -> Candidates:
    """Add whether each candidate meets a condition; unknown counts as not met."""
    result = _HANDLERS[type(condition)](rows, condition, tables, column)
    return result.with_columns(pl.col(column).fill_null(False))


def is_longer_than(length: Any) -> pl.Expr:
    """Return whether the stay is longer than `length`; a stay of exactly `length` is not."""
    return pl.col("end") > time_of(TimePoint("index.start", 1, length))


def is_of_age(youngest: Duration, oldest: Duration) -> pl.Expr:
    """Return whether the patient's age at the start is from `youngest` to under `oldest`."""
    bounds = [time_of(TimePoint("birth", 1, age)) for age in (youngest, oldest)]
    return (pl.col("start") >= bounds[0]) & (pl.col("start") < bounds[1])


def mark(rows: pl.LazyFrame, matches: pl.LazyFrame, column: str) -> pl.LazyFrame:
    """Add whether a candidate is among `matches`."""
    flags = matches.select(*KEY).unique().with_columns(pl.lit(True).alias(column))
    return rows.join(flags, on=KEY, how="left").with_columns(pl.col(column).fill_null(False))


def _index_is(rows: pl.LazyFrame, condition: IndexIs, tables: Tables, column: str) -> Candidates:
    return mark(rows, stays_of(tables.encounters_of(condition.index_is)), column)


def _index_age(rows: pl.LazyFrame, condition: IndexAge, _: Tables, column: str) -> Candidates:
    return rows.with_columns(is_of_age(*condition.index_age).alias(column))


def _in_cohort(rows: pl.LazyFrame, condition: InCohort, tables: Tables, column: str) -> Candidates:
    return mark(rows, tables.members[condition.in_cohort], column)


def _combination(
    rows: pl.LazyFrame, condition: AnyOf | AllOf | SomeOf | Not, tables: Tables, column: str
) -> Candidates:
    parts = [part for _, part in parts_of(condition)]
    columns = [f"{column}_{place}" for place in range(len(parts))]
    for part, name in zip(parts, columns, strict=True):
        rows = add_condition(rows, part, tables, name)
    number = pl.sum_horizontal(pl.col(columns).cast(pl.Int32))
    match condition:
        case Not():
            holds = number == 0
        case AnyOf():
            holds = number >= 1
        case AllOf():
            holds = number == len(parts)
        case SomeOf():
            holds = number >= condition.at_least
    return rows.with_columns(holds.alias(column)).drop(columns)


def _index_has(rows: pl.LazyFrame, condition: IndexHas, tables: Tables, column: str) -> Candidates:
    if condition.index_has == "end":
        return rows.with_columns(pl.col("end").is_not_null().alias(column))
    principal = tables.events.filter((pl.col("kind") == "DX") & (pl.col("rank") == 1))
    return mark(rows, stays_of(principal), column)


def _index_without(rows: pl.LazyFrame, condition: IndexWithout, tables: Tables, column: str) -> Candidates:
    return mark(rows, stays_of(tables.events_of(condition.index_without)), column).with_columns(
        ~pl.col(column)
    )


def _index_longer_than(rows: pl.LazyFrame, condition: IndexLongerThan, _: Tables, column: str) -> Candidates:
    return rows.with_columns(is_longer_than(condition.index_longer_than).alias(column))


def _index_alive(rows: pl.LazyFrame, _: IndexAlive, __: Tables, column: str) -> Candidates:
    return rows.with_columns((~pl.col("died")).alias(column))


def _data_until(rows: pl.LazyFrame, condition: DataUntil, _: Tables, column: str) -> Candidates:
    return rows.with_columns((pl.col("end_of_data") >= time_of(condition.data_until)).alias(column))


def _event(rows: pl.LazyFrame, condition: EventSeen, tables: Tables, column: str) -> Candidates:
    return mark(rows, _events(rows, tables, condition.event, *_span(condition)), column)


def _no_event(rows: pl.LazyFrame, condition: EventNotSeen, tables: Tables, column: str) -> Candidates:
    matches = _events(rows, tables, condition.no_event, None, time_of(condition.before))
    return mark(rows, matches, column).with_columns(~pl.col(column))


def _events(
    rows: pl.LazyFrame, tables: Tables, name: str, start: pl.Expr | None, end: pl.Expr | None
) -> pl.LazyFrame:
    """Return (candidate, moment) of the events of a code list in (start, end], by when they are dated.

    Unless `tables.sees_codes`, a diagnosis or procedure in a time that ends by the prediction must be known at it.
    """
    events = tables.events_of(name)
    if tables.sees_codes or end is None:
        return within_window(rows, event_times(events), start, end)
    is_code = pl.col("kind").is_in(CODED_KINDS)
    moments = events.select(
        "subject_id", "encounter_id", moment="time", coding_time=pl.when(is_code).then("available_at")
    )
    bounds = rows.select(*KEY, latest=pl.when(end <= pl.col("predict_at")).then("predict_at"))
    pairs = within_window(rows, moments, start, end).join(bounds, on=KEY, how="left")
    return pairs.filter((pl.col("coding_time") <= pl.col("latest")).fill_null(True))


def _any_encounter(rows: pl.LazyFrame, condition: EncounterSeen, tables: Tables, column: str) -> Candidates:
    moments = encounter_starts(tables.encounters_of(condition.any_encounter))
    matches = within_window(rows, moments, *_span(condition))
    return mark(rows, matches.filter(pl.col("encounter_id") != pl.col("index_encounter")), column)


def _lab(rows: pl.LazyFrame, condition: LabSeen, tables: Tables, column: str) -> Candidates:
    return mark(rows, values_meeting(rows, condition, tables, *_span(condition), until="known"), column)


def stays_of(events: pl.LazyFrame) -> pl.LazyFrame:
    """Return the stays of events, with the encounter as `index_encounter`."""
    return events.filter(pl.col("encounter_id").is_not_null()).rename({"encounter_id": "index_encounter"})


def _span(condition: EventSeen | EncounterSeen | LabSeen) -> tuple[pl.Expr | None, pl.Expr | None]:
    return (
        None if condition.after is None else time_of(condition.after),
        None if condition.before is None else time_of(condition.before),
    )


_HANDLERS: dict[type, Callable[[pl.LazyFrame, Any, Tables, str], Candidates]] = {
    AllOf: _combination,
    AnyOf: _combination,
    InCohort: _in_cohort,
    IndexAge: _index_age,
    IndexIs: _index_is,
    LabSeen: _lab,
    Not: _combination,
    SomeOf: _combination,
    IndexHas: _index_has,
    IndexWithout: _index_without,
    IndexLongerThan: _index_longer_than,
    IndexAlive: _index_alive,
    DataUntil: _data_until,
    EventSeen: _event,
    EventNotSeen: _no_event,
    EncounterSeen: _any_encounter,
}
