"""Evaluates each outcome of the cohort language over candidates: its time, or the classes of the stay."""

from collections.abc import Callable
from typing import Any

import polars as pl

from pipelines.cohorts.candidates import KEY, death_in_stay, time_of
from pipelines.cohorts.chapters import CLASS_MAPS
from pipelines.cohorts.conditions import is_longer_than, stays_of
from pipelines.cohorts.episodes import episode_starts, reaching_rate
from pipelines.cohorts.tables import Tables, encounter_starts, event_times, within_window
from pipelines.cohorts.time_outcomes import first_event
from pipelines.cohorts.values import class_of_value, number_of_value, values_meeting
from schemas.cohort import (
    AnyEncounter,
    AnyEvent,
    ClassOf,
    Died,
    EncounterFilter,
    EncountersWith,
    EpisodesOf,
    IndexDaysLeft,
    IndexDied,
    IndexLongerThan,
    LabClass,
    LabelsOf,
    LabReached,
    TimePoint,
    TimeTo,
    ValueOf,
)

_NO_TIME = pl.lit(None, dtype=pl.Datetime("us"))


def add_outcome_time(rows: pl.LazyFrame, outcome: Any, tables: Tables) -> pl.LazyFrame:
    """Add `outcome_time`: when the outcome occurred; null if it did not occur or has no time."""
    if isinstance(outcome, ClassOf | LabelsOf):
        return rows.with_columns(outcome_time=_NO_TIME)
    return _TIMED[type(outcome)](rows, outcome, tables)


def classes_of(outcome: ClassOf | LabelsOf, tables: Tables) -> pl.LazyFrame:
    """Return subject_id, index_encounter, label: the distinct classes of each stay; only one under `class_of`.

    Of several diagnoses with one rank in a stay, the first by vocabulary and code counts.
    """
    diagnoses = stays_of(tables.events.filter(pl.col("kind") == "DX"))
    if isinstance(outcome, ClassOf):
        diagnoses = diagnoses.filter(pl.col("rank") == outcome.rank)
        diagnoses = diagnoses.sort(*KEY, "vocab", "code").unique(KEY, keep="first")
    labels = diagnoses.select(*KEY, label=CLASS_MAPS[outcome.map]())
    return labels.filter(pl.col("label").is_not_null()).unique().sort(*KEY, "label")


def _index_died(rows: pl.LazyFrame, _: IndexDied, __: Tables) -> pl.LazyFrame:
    return rows.with_columns(outcome_time=death_in_stay())


def _index_longer_than(rows: pl.LazyFrame, outcome: IndexLongerThan, _: Tables) -> pl.LazyFrame:
    threshold = time_of(TimePoint("index.start", 1, outcome.index_longer_than))
    longer = is_longer_than(outcome.index_longer_than)
    return rows.with_columns(outcome_time=pl.when(longer).then(threshold).otherwise(_NO_TIME))


def _died(rows: pl.LazyFrame, outcome: Died, _: Tables) -> pl.LazyFrame:
    is_by_end = pl.col("death") <= window_end(outcome)
    return rows.with_columns(outcome_time=pl.when(is_by_end).then("death").otherwise(_NO_TIME))


def _any_encounter(rows: pl.LazyFrame, outcome: AnyEncounter, tables: Tables) -> pl.LazyFrame:
    moments = encounter_starts(tables.encounters_of(outcome.any_encounter))
    matches = within_window(rows, moments, pl.col("predict_at"), window_end(outcome))
    return _nth(rows, matches, 1)


def _any_event(rows: pl.LazyFrame, outcome: AnyEvent, tables: Tables) -> pl.LazyFrame:
    moments = event_times(tables.events_of(outcome.any_event))
    if outcome.first_ever:  # one by the prediction excludes the index, like any outcome that came by then
        first = moments.group_by("subject_id").agg(pl.col("moment").min())
        return _nth(rows, within_window(rows, first, None, window_end(outcome)), 1)
    return _nth(rows, within_window(rows, moments, pl.col("predict_at"), window_end(outcome)), 1)


def _encounters_with(rows: pl.LazyFrame, outcome: EncountersWith, tables: Tables) -> pl.LazyFrame:
    moments = encounter_starts(tables.encounters_of(EncounterFilter(with_=outcome.encounters_with)))
    matches = within_window(rows, moments, pl.col("predict_at"), window_end(outcome))
    if outcome.on_distinct_days:
        day = pl.col("moment").dt.truncate("1d")
        matches = matches.group_by(*KEY, day.alias("day")).agg(pl.col("moment").min())
    return _nth(rows, matches, outcome.at_least)


def _episodes_of(rows: pl.LazyFrame, outcome: EpisodesOf, tables: Tables) -> pl.LazyFrame:
    """Add when the last episode needed began; the index is in the first episode, earlier visits do not count."""
    moments = encounter_starts(tables.encounters_of(EncounterFilter(with_=outcome.episodes_of)))
    visits = within_window(rows, moments, None, window_end(outcome)).join(
        rows.select(*KEY, "start"), on=KEY, how="left"
    )
    since_index = visits.filter(pl.col("moment") >= pl.col("start"))
    episodes = episode_starts(since_index, outcome.new_episode_after)
    completions = reaching_rate(episodes, outcome.at_least)
    return rows.join(completions.group_by(KEY).agg(outcome_time=pl.col("moment").min()), on=KEY, how="left")


def _lab(rows: pl.LazyFrame, outcome: LabReached, tables: Tables) -> pl.LazyFrame:
    window = (pl.col("predict_at"), window_end(outcome))
    return _nth(rows, values_meeting(rows, outcome, tables, *window, until="moment"), 1)


def _lab_class(rows: pl.LazyFrame, outcome: LabClass, tables: Tables) -> pl.LazyFrame:
    return class_of_value(rows, outcome, tables, window_end(outcome))


def _index_days_left(rows: pl.LazyFrame, _: IndexDaysLeft, __: Tables) -> pl.LazyFrame:
    return rows.with_columns(outcome_time=pl.col("end"))


def _value_of(rows: pl.LazyFrame, outcome: ValueOf, tables: Tables) -> pl.LazyFrame:
    return number_of_value(rows, outcome, tables, window_end(outcome))


def _time_to(rows: pl.LazyFrame, outcome: TimeTo, tables: Tables) -> pl.LazyFrame:
    return first_event(rows.with_columns(window_end=window_end(outcome)), outcome, tables)


def window_end(outcome: Any) -> pl.Expr:
    """Return the end of the outcome window of a candidate; null for an outcome without a window."""
    length, end = getattr(outcome, "within", None), getattr(outcome, "until", None)
    if end is not None:
        return time_of(end)
    if length is None:
        return _NO_TIME
    return time_of(
        TimePoint("end_of_data") if length == "end_of_data" else TimePoint("predict_at", 1, length)
    )


def _nth(rows: pl.LazyFrame, matches: pl.LazyFrame, count: int) -> pl.LazyFrame:
    """Add the time of the `count`-th matching moment; null if there are fewer."""
    nth = pl.col("moment").sort().get(count - 1, null_on_oob=True)
    return rows.join(matches.group_by(KEY).agg(outcome_time=nth), on=KEY, how="left")


_TIMED: dict[type, Callable[[pl.LazyFrame, Any, Tables], pl.LazyFrame]] = {
    IndexDied: _index_died,
    IndexLongerThan: _index_longer_than,
    Died: _died,
    AnyEncounter: _any_encounter,
    AnyEvent: _any_event,
    EncountersWith: _encounters_with,
    EpisodesOf: _episodes_of,
    LabClass: _lab_class,
    LabReached: _lab,
    IndexDaysLeft: _index_days_left,
    TimeTo: _time_to,
    ValueOf: _value_of,
}
