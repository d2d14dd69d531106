"""ENCOUNTER to encounters/1: start and end of each encounter, and the reasons to drop rows.

The rows are transformed in two steps: each by itself, batch by batch; then with its patient's birth and death.
"""

from collections.abc import Iterable
from datetime import date, timedelta

import polars as pl

from pipelines.engine.drop import RowsAndFlow, drop_rows
from pipelines.sources.pcornet.ids import Ids
from pipelines.sources.pcornet.times import (
    first_moment,
    has_sentinel,
    is_invalid_time,
    is_midnight_after,
    last_moment,
    without_sentinels,
)
from pipelines.sources.pcornet.words import NO_INFORMATION, coded_value, count_notes, count_padded, strip_text
from schemas.cards import Flow
from schemas.tables.events import ENCOUNTERS

STAY_TYPES = ("IP", "EI")
"""Inpatient types: without a discharge they are open, whereas any other encounter ends with its day."""

GRACE_BEFORE_BIRTH = timedelta(days=1)
DAYS_AFTER_DEATH = timedelta(days=30)
DATES = ("ADMIT_DATE", "DISCHARGE_DATE")
TIMES = ("ADMIT_TIME", "DISCHARGE_TIME")
WORDS = ("ENC_TYPE", "DISCHARGE_DISPOSITION", "DISCHARGE_STATUS")
# the longest year, so that an age reaches a whole year on the birthday and not before
DAYS_OF_A_YEAR = 366


def encounter_rows(raw: pl.DataFrame, ids: Ids) -> RowsAndFlow:
    """Return the usable rows of ENCOUNTER: ids, start, discharge, type, discharge status, death."""
    rows = strip_text(raw)
    note_exprs = {
        "sentinel_date": has_sentinel(DATES),
        "time_24_00": pl.any_horizontal(is_midnight_after(name) for name in TIMES),
        "bad_time": pl.any_horizontal(is_invalid_time(name) for name in TIMES),
        "no_admit_time": pl.col("ADMIT_TIME").is_null(),
        "no_information": pl.any_horizontal(pl.col(name).is_in(NO_INFORMATION) for name in WORDS),
    }
    notes = count_notes(rows, note_exprs) | {"padded": count_padded(raw, rows)}
    status = coded_value("DISCHARGE_STATUS")
    parsed_rows = without_sentinels(rows, *DATES).select(
        subject_id=ids.of(rows["PATID"], "PATID"),
        encounter_id=ids.of(rows["ENCOUNTERID"], "ENCOUNTERID"),
        start=first_moment("ADMIT_DATE", "ADMIT_TIME"),
        discharge=last_moment("DISCHARGE_DATE", "DISCHARGE_TIME"),
        type=coded_value("ENC_TYPE"),
        discharge_status=status,
        died=(status == "EX").fill_null(False)
        | (coded_value("DISCHARGE_DISPOSITION") == "E").fill_null(False),
    )
    usable_rows, flow = drop_rows(
        parsed_rows,
        {
            "no_patid": pl.col("subject_id").is_null(),
            "no_encounterid": pl.col("encounter_id").is_null(),
            "no_admit_date": pl.col("start").is_null(),
        },
    )
    return usable_rows, flow.model_copy(update={"noted": notes})


def encounters(
    parts: Iterable[pl.DataFrame], people: pl.DataFrame, all_subject_ids: pl.Series, end_of_data: date
) -> RowsAndFlow:
    """Return encounters/1 of the population, sorted by subject, start and id.

    Args:
        parts: from `encounter_rows`, each with all rows of its subjects; subject ids ascend from part to part.
        people: subject_id, birth_date, death_date?, race? of the population.
        all_subject_ids: subject_id of all patients in DEMOGRAPHIC.
        end_of_data: The last day on which the CDM is complete.
    """
    drop_reasons, distinct_parts = _drop_reasons(all_subject_ids, end_of_data), []
    for rows in parts:
        population_rows, flow = drop_rows(rows.join(people, on="subject_id", how="left"), drop_reasons)
        sorted_rows = population_rows.sort(
            "subject_id", "start", "encounter_id", "discharge", "type", "discharge_status", "died"
        )
        single, repeats = drop_rows(sorted_rows, {"repeated": ~pl.struct(pl.all()).is_first_distinct()})
        distinct_parts.append((single, flow.then(repeats)))
    # where two patients share an id, perhaps across parts, the first row counts
    first = pl.concat([single["encounter_id"] for single, _ in distinct_parts]).is_first_distinct()
    stays, total, at = [], Flow(source_rows=0, kept_rows=0), 0
    for single, flow in distinct_parts:
        part_stays, part_flow = _merge_part(single, first[at : at + single.height], end_of_data)
        stays.append(part_stays)
        total, at = total + flow.then(part_flow), at + single.height
    return pl.concat(stays), total


def _merge_part(rows: pl.DataFrame, is_first: pl.Series, end_of_data: date) -> RowsAndFlow:
    """Return the encounters of sorted rows: the first row of each id, with overlapping stays merged."""
    single, conflicts = drop_rows(rows, {"conflicting": ~pl.lit(is_first)})
    with_end, notes = _with_end(single, end_of_data)
    stays = merge_overlapping(with_end)
    merge_flow = Flow(
        source_rows=with_end.height,
        kept_rows=stays.height,
        dropped={"overlaps_a_stay": with_end.height - stays.height},
        noted=notes,
    )
    return with_contract_columns(stays), conflicts.then(merge_flow)


def out_of_range(time: str, end_of_data: date) -> dict[str, pl.Expr]:
    """Return the reasons why a time is impossible: before birth, after the end of the data, long after death.

    Args:
        time: The name of a column; birth_date and death_date? are beside it.
        end_of_data: The last day on which the CDM is complete.
    """
    moment, day = pl.col(time), timedelta(days=1)
    return {
        "before_birth": moment < pl.col("birth_date") - GRACE_BEFORE_BIRTH,
        "after_end_of_data": moment >= pl.lit(end_of_data + day).cast(pl.Datetime("us")),
        "after_death": moment >= pl.col("death_date") + DAYS_AFTER_DEATH + day,
    }


def _drop_reasons(all_subject_ids: pl.Series, end_of_data: date) -> dict[str, pl.Expr]:
    return {
        "unknown_patient": ~pl.col("subject_id").is_in(all_subject_ids.implode()),
        "not_in_population": pl.col("birth_date").is_null(),
        **out_of_range("start", end_of_data),
    }


def _with_end(rows: pl.DataFrame, end_of_data: date) -> tuple[pl.DataFrame, dict[str, int]]:
    """Add `end`: a plausible discharge, else the end of the day; null for a stay without a plausible discharge."""
    start, discharge = pl.col("start"), pl.col("discharge")
    is_stay = pl.col("type").is_in(STAY_TYPES).fill_null(False)
    late = discharge >= pl.lit(end_of_data + timedelta(days=1)).cast(pl.Datetime("us"))
    usable = ((discharge > start) & ~late).fill_null(False)
    notes = {
        "discharge_before_admit": discharge < start,
        "discharge_at_admit": discharge == start,
        "discharge_after_end_of_data": late,
        "stay_without_discharge": is_stay & discharge.is_null(),
        "open": is_stay & ~usable,
        "ends_with_its_day": ~is_stay & ~usable,
    }
    own_day = last_moment(start.dt.date())
    end = pl.when(usable).then(discharge).when(~is_stay).then(own_day)
    return rows.with_columns(end=end), count_notes(rows, notes)


def merge_overlapping(encounters: pl.DataFrame) -> pl.DataFrame:
    """Merge overlapping stays into the first of them, lasting to the latest end; keep all other encounters.

    A site may record one stay in two rows, from two systems or as emergency and inpatient. Events of the later rows are
    linked to the first by date.

    Args:
        encounters: subject_id, encounter_id, type, start, end, discharge_status, died, and other columns, whose values
            are those of the first row.
    """
    is_stay = (pl.col("type").is_in(STAY_TYPES) & pl.col("end").is_not_null()).fill_null(False)
    stays = encounters.filter(is_stay).sort("subject_id", "start", "encounter_id")
    starts_new_stay = pl.col("start") >= pl.col("end").cum_max().shift(1).over("subject_id")
    latest = pl.col("discharge_status").sort_by("end").last()
    aggregates = {"end": pl.col("end").max(), "died": pl.col("died").any(), "discharge_status": latest}
    whole = (
        stays.with_columns(stay=starts_new_stay.fill_null(True).cum_sum())
        .group_by("stay", maintain_order=True)
        .agg(pl.exclude("stay", *aggregates).first(), **aggregates)
    )
    all_encounters = pl.concat([encounters.filter(~is_stay), whole.select(encounters.columns)])
    return all_encounters.sort("subject_id", "start", "encounter_id")


def with_contract_columns(stays: pl.DataFrame) -> pl.DataFrame:
    """Return encounters/1 of rows with a birth_date; a CDM has neither times of death nor an insurance."""
    no_text = pl.lit(None, pl.String)
    return stays.with_columns(
        age_years=age_years("start", "birth_date"),
        death_time=pl.lit(None, pl.Datetime("us")),  # DEATH has dates without times
        insurance=no_text,
        admission_type=no_text,
    ).select(ENCOUNTERS.names)


def age_years(time: str, birth: str) -> pl.Expr:
    """Return the age in years at a time: calendar years, plus the days since the last birthday over 366; at least 0.

    It reaches 18 on the 18th birthday and not before. For births on 29 February the birthday in other years is
    28 February, as in `birth + 18 years`.
    """
    year = pl.col(time).dt.year()
    this_year, last_year = _birthday(birth, year), _birthday(birth, year - 1)
    is_past_birthday = pl.col(time) >= this_year
    since_birthday = pl.col(time) - pl.when(is_past_birthday).then(this_year).otherwise(last_year)
    years = year - pl.col(birth).dt.year() - (~is_past_birthday).cast(pl.Int32)
    return (years + since_birthday.dt.total_days() / DAYS_OF_A_YEAR).clip(lower_bound=0.0)


def _birthday(birth: str, year: pl.Expr) -> pl.Expr:
    """Return the birthday in a year."""
    month, day = pl.col(birth).dt.month(), pl.col(birth).dt.day()
    is_leap = ((year % 4 == 0) & (year % 100 != 0)) | (year % 400 == 0)
    valid_day = pl.when((month == 2) & (day == 29) & ~is_leap).then(28).otherwise(day)
    return pl.datetime(year, month, valid_day)
