"""MEDS rows as subjects, encounters and events. Nothing here reads or writes.

A dataset that we exported has extension columns and is restored exactly. Of any other only subject_id, time, code,
numeric_value and perhaps an encounter are known; docs/meds.md describes how they are read.
"""

import polars as pl

from pipelines.engine.drop import RowsAndFlow, drop_rows
from pipelines.events import clock
from pipelines.events.code_limits import CODE_FAULTS, damaged_codes
from pipelines.events.encounter_linking import attach, attachment_spans
from pipelines.sources.meds import codes
from schemas.cards import Flow
from schemas.errors import InputError
from schemas.suppress import suppress_fraction
from schemas.tables.events import ENCOUNTERS, EVENTS
from schemas.tables.meds import SPANS_ROWS

SEXES = {"F": "F", "FEMALE": "F", "8532": "F", "M": "M", "MALE": "M", "8507": "M"}
"""Sexes as words, letters and OMOP's concept ids."""
BY_GAPS = "by gaps"
"""The `type` in encounters/1 of an encounter formed by gaps."""
ONE_SECOND = pl.duration(seconds=1)
IS_ABOUT_SUBJECT = codes.has_prefix(*codes.SUBJECT_CODES)
IS_ABOUT_ENCOUNTER = codes.has_prefix(*codes.ENCOUNTER_CODES)


def subjects(rows: pl.DataFrame) -> pl.DataFrame:
    """Return subject_id, birth_date, death (a time), sex, one row per subject, sorted.

    Of several births the earliest counts, of several deaths the latest, of several sexes the first alphabetically.

    Args:
        rows: subject_id, time, code; all rows about subjects, and at least one row of each subject.
    """
    sex = codes.part_after(codes.GENDER).str.to_uppercase()
    normalized_sex = sex.replace_strict(SEXES, default="UN", return_dtype=pl.String)
    time = pl.col("time")
    return (
        rows.group_by("subject_id")
        .agg(
            birth_date=time.filter(codes.has_prefix(codes.BIRTH)).min(),
            death=time.filter(codes.has_prefix(codes.DEATH)).max(),
            sex=normalized_sex.filter(sex.is_not_null()).min(),
        )
        .sort("subject_id")
    )


def encounters(rows: pl.DataFrame, *, is_nest_export: bool, by_gaps: bool) -> pl.DataFrame:
    """Return encounters/1 of the rows that have an encounter_id.

    An encounter with an admission or an OMOP visit lasts from there to its discharge, and has no end without a
    discharge after its start. A visit that ends at its start or earlier on the same day, as a date without a time
    does, ends with that day. Any other encounter, or one formed by gaps, lasts from its first row to its last, at least
    one second. The discharge says whether the patient died in it; without a discharge status, a death within it does.

    Args:
        rows: subject_id, time, code, encounter_id, end; all rows of their subjects.
        is_nest_export: Deaths in a stay have rows of their own, so that the subject's death is not used.
        by_gaps: encounter_id is from `number_by_gaps`.
    """
    is_visit = codes.has_prefix(*codes.VISIT)
    is_admission, is_discharge = (
        codes.has_prefix(codes.ADMISSION) | is_visit,
        codes.has_prefix(codes.DISCHARGE, codes.VISIT_END),
    )
    time = pl.col("time")
    per_encounter = (
        rows.drop_nulls(["encounter_id", "time"])
        .group_by("subject_id", "encounter_id")
        .agg(
            admission=time.filter(is_admission).min(),
            discharge=pl.max_horizontal(
                time.filter(is_discharge).max(), pl.col("end").filter(is_admission).max()
            ),
            is_visit=is_visit.any(),
            first=time.min(),
            last=time.max(),
            recorded_death=time.filter(codes.has_prefix(codes.STAY_DEATH)).max(),
            status=codes.part_after(codes.DISCHARGE).min(),
            admission_type=codes.part_after(codes.ADMISSION, *codes.VISIT).min(),
            race=codes.part_after(codes.RACE).min(),
            insurance=codes.part_after(codes.INSURANCE).min(),
        )
    )
    is_stay = pl.col("admission").is_not_null() & pl.lit(not by_gaps)
    row_span_end = pl.max_horizontal("last", pl.col("first") + ONE_SECOND)
    is_same_day = pl.col("admission").dt.truncate("1d") == pl.col("discharge").dt.truncate("1d")
    ends_with_day = pl.col("is_visit") & is_same_day & (pl.col("discharge") <= pl.col("admission"))
    discharge = pl.when(ends_with_day).then(_last_moment("admission")).otherwise("discharge")
    with_span = per_encounter.with_columns(
        start=pl.when(is_stay).then("admission").otherwise("first"),
        end=pl.when(is_stay).then(discharge).otherwise(row_span_end),
    ).with_columns(end=pl.when(pl.col("end") > pl.col("start")).then("end"))
    subject_race = rows.group_by("subject_id").agg(own_race=codes.part_after(codes.RACE).min())
    with_subject = with_span.join(subjects(rows), on="subject_id", how="left").join(
        subject_race, on="subject_id"
    )
    death_inside = pl.col("death").is_between("start", "end").fill_null(False)
    status = pl.col("status")
    died = pl.when(status.is_null()).then(death_inside).otherwise(status == codes.DIED)
    subject_death = pl.when(death_inside & died & pl.lit(not is_nest_export)).then("death")
    return (
        with_subject.with_columns(
            type=pl.lit(BY_GAPS if by_gaps else None, pl.String)
            if is_nest_export or by_gaps
            else pl.when(~is_stay).then(pl.lit(SPANS_ROWS)),
            race=pl.col("race") if is_nest_export else pl.coalesce("race", "own_race"),
            discharge_status=pl.when(~status.is_in([codes.DIED, codes.ALIVE])).then("status"),
            died=died,
            death_time=pl.coalesce("recorded_death", subject_death),
            age_years=(pl.col("start").dt.year() - pl.col("birth_date").dt.year()).cast(pl.Float64),
        )
        .select(ENCOUNTERS.names)
        .sort("subject_id", "start", "encounter_id")
    )


def _last_moment(time: str) -> pl.Expr:
    """Return the last microsecond of a time's day."""
    return pl.col(time).dt.truncate("1d") + pl.duration(days=1) - pl.duration(microseconds=1)


def number_by_gaps(rows: pl.DataFrame, *, gap_hours: float) -> pl.DataFrame:
    """Fill `encounter_id`: rows of a subject that follow each other within the gap are one encounter.

    Rows without a time and rows about the subject, such as births and deaths, get no encounter and separate none.
    Ids count from 1, by subject and time.
    """
    counts = pl.col("time").is_not_null() & ~IS_ABOUT_SUBJECT
    moments_in_order = rows.filter(counts).select("subject_id", "time").unique().sort("subject_id", "time")
    is_after_gap = (pl.col("time") - pl.col("time").shift()).over("subject_id") > pl.duration(
        microseconds=round(gap_hours * 3_600_000_000)
    )
    begins = is_after_gap.fill_null(True)
    numbers = moments_in_order.with_columns(encounter_id=begins.cum_sum().cast(pl.Int64))
    moments = rows.with_columns(moment=pl.when(counts).then("time")).drop("encounter_id")
    return moments.join(
        numbers,
        left_on=["subject_id", "moment"],
        right_on=["subject_id", "time"],
        how="left",
        maintain_order="left",
    ).drop("moment")


def nest_events(rows: pl.DataFrame, by_gaps: pl.DataFrame | None) -> RowsAndFlow:
    """Return the events/1 that a dataset of ours was exported from.

    Args:
        rows: subject_id, time, code and the extension columns.
        by_gaps: encounters/1 formed by gaps, to which the events are attached; None: each event keeps its encounter_id,
            which may be null.
    """
    no_value = (pl.col("kind") == "LAB") & ~pl.col("value").is_finite().fill_null(False)
    event_rows, flow = drop_rows(
        rows, {**_drop_reasons(pl.col("kind").is_null()), "no_finite_value": no_value}
    )
    with_stays = event_rows if by_gaps is None else attach(event_rows, _spans(by_gaps))
    # an encounter formed by gaps may outlast the stay in it
    stay_end = [] if by_gaps is None else [pl.when(clock.is_coded_at_the_end()).then("coded_at")]
    events = (with_stays if by_gaps is None else _with_coded_at(with_stays, by_gaps)).with_columns(
        code=codes.read_written_code(),
        value=pl.when(pl.col("value").is_finite()).then("value"),
        available_at=pl.max_horizontal("time", "available_at", *stay_end),
    )
    return events.select(EVENTS.names), flow


def classified_events(rows: pl.DataFrame, code_table: pl.DataFrame, stays: pl.DataFrame) -> RowsAndFlow:
    """Return events/1 of any MEDS dataset, attached to stays, with kinds by their codes' prefixes.

    The codes of diagnoses and procedures count as known from the end of their stay, whatever their own time: bills are
    coded at discharge. In a stay without an end they are never known.

    Args:
        rows: subject_id, time, code, numeric_value, encounter_id.
        code_table: meds_code, kind, vocab, code, mapped, unit, valued_kind …, is_valued, is_mended, fault; from
            `codes.classify_codes`.
        stays: encounters/1.
    """
    ends = {"end_of_condition": codes.has_prefix(codes.CONDITION_END)}
    damage = {fault: _has_code_of(code_table.filter(pl.col("fault") == fault)) for fault in CODE_FAULTS}
    event_rows, flow = drop_rows(rows, _drop_reasons(pl.lit(False)) | ends | damage)
    numeric_value = pl.col("numeric_value")
    is_finite = numeric_value.is_finite().fill_null(False)
    with_codes = (
        _with_coded_at(attach(event_rows, _spans(stays)), stays)
        .rename({"code": "meds_code"})
        .join(code_table, on="meds_code", how="left")
        .with_columns(value=pl.when(is_finite).then(numeric_value), is_lab=is_finite & pl.col("is_valued"))
    )
    stay_end = pl.when(clock.is_coded_at_the_end()).then("coded_at")
    events = with_codes.with_columns(
        *(
            pl.when("is_lab").then(f"valued_{name}").otherwise(name).alias(name)
            for name in ("kind", "vocab", "code", "mapped", "unit")
        ),
        available_at=pl.max_horizontal("time", stay_end),
        rank=pl.lit(None, pl.Int64),
    )
    notes = {
        "value_not_finite": event_rows.filter(pl.col("numeric_value").is_not_null() & ~is_finite).height,
        "mended_code": event_rows.filter(_has_code_of(code_table.filter("is_mended"))).height,
    }
    return events.select(EVENTS.names), flow.model_copy(update={"noted": notes})


def refuse_damaged_codes(flow: Flow, coded_rows: int) -> None:
    """Refuse a dataset in which too many rows with a known prefix have a damaged code."""
    if fault := damaged_codes(flow, "code", coded_rows):
        raise InputError(f"data: {fault}")


def refuse_without_events(flow: Flow) -> None:
    """Refuse a dataset in which no row is an event."""
    if flow.kept_rows:
        return
    reason = max(flow.dropped, key=lambda name: flow.dropped[name])
    share = f"{suppress_fraction(flow.dropped[reason], flow.source_rows)} rows"
    raise InputError(
        f"events: not one row of the dataset is an event: {share} were dropped as {reason}. Give a dataset with rows "
        "that have a time and are about neither a subject nor an encounter; docs/meds.md lists the codes."
    )


def _has_code_of(code_table: pl.DataFrame) -> pl.Expr:
    """Return whether a row's code is in the table."""
    return pl.col("code").is_in(code_table["meds_code"].implode())


def _with_coded_at(rows: pl.DataFrame, stays: pl.DataFrame) -> pl.DataFrame:
    """Add `coded_at`, when the codes of each row's stay become known; null for a row in no stay."""
    coded_at = stays.select("encounter_id", coded_at=clock.coded_at(is_open=pl.col("end").is_null()))
    return rows.join(coded_at, on="encounter_id", how="left")


def _spans(stays: pl.DataFrame) -> pl.DataFrame:
    return attachment_spans(stays.lazy(), lookback_hours=0).collect()


def _drop_reasons(has_no_kind: pl.Expr) -> dict[str, pl.Expr]:
    return {
        "about_subject": IS_ABOUT_SUBJECT,
        "about_encounter": IS_ABOUT_ENCOUNTER,
        "static": pl.col("time").is_null(),
        "no_kind": has_no_kind,
    }
