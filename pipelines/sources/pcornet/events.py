"""The rows of a bucket as events/1, checked against its patients' lives and linked to their encounters."""

from dataclasses import dataclass
from datetime import date

import polars as pl

from pipelines.engine.drop import RowsAndFlow, drop_rows
from pipelines.events import clock
from pipelines.events.code_mapping import to_icd10, zeros_lost
from pipelines.sources.pcornet.encounters import out_of_range
from pipelines.sources.pcornet.linking import link_by_day
from pipelines.sources.pcornet.times import last_moment
from pipelines.sources.pcornet.words import count_notes
from schemas.cards import Flow
from schemas.tables.events import EVENTS

_COPY_COLUMNS = ("rank", "available_at")  # columns in which copies of one event may differ


@dataclass(frozen=True)
class PcornetCrosswalks:
    """The crosswalks that codes are mapped by; each may be empty."""

    diagnoses: pl.DataFrame  # code, mapped: ICD-9-CM -> ICD-10-CM
    procedures: pl.DataFrame  # ICD-9-PCS -> ICD-10-PCS
    drugs: pl.DataFrame  # vocab, code, atc


@dataclass(frozen=True)
class PcornetBucket:
    """The patients of one bucket, their encounters, and the end of the data."""

    people: pl.DataFrame  # subject_id, birth_date, death_date?
    encounters: pl.DataFrame  # encounters/1
    end_of_data: date


def events(
    kind: str, rows: pl.DataFrame, bucket: PcornetBucket, crosswalks: PcornetCrosswalks
) -> RowsAndFlow:
    """Return the distinct events of one table in one bucket.

    Args:
        kind: The kind of all of the table's events.
        rows: from `event_rows`.
        bucket: The patients of these rows and their encounters.
        crosswalks: The crosswalks to map codes by.
    """
    linked_rows, flow = _link_encounters(rows, bucket)
    with_times = linked_rows.with_columns(time=_time(), available_at=_available(kind))
    with_mapping = _map_codes(kind, with_times, crosswalks)
    event_table = with_mapping.with_columns(kind=pl.lit(kind, pl.Enum([kind]))).select(EVENTS.names)
    distinct_events, repeats = _drop_copies(event_table)
    notes = (
        flow.noted
        | count_unmapped(kind, distinct_events)
        | count_lost_zeros(kind, distinct_events, crosswalks)
    )
    return distinct_events, flow.then(repeats).model_copy(update={"noted": notes})


def count_unmapped(kind: str, events: pl.DataFrame) -> dict[str, int]:
    """Return the number of events without a token because no crosswalk maps their code."""
    reasons = {"DX": "not_in_gem", "PR": "not_in_gem"}
    return {reasons[kind]: events["mapped"].null_count()} if kind in reasons else {}


def count_lost_zeros(kind: str, events: pl.DataFrame, crosswalks: PcornetCrosswalks) -> dict[str, int]:
    """Return how many ICD-9 codes are in the crosswalk only with leading or trailing zeros added."""
    if kind not in ("DX", "PR"):
        return {}
    targets = crosswalks.diagnoses if kind == "DX" else crosswalks.procedures
    without_target = events.filter(pl.col("vocab").str.starts_with("icd9") & pl.col("mapped").is_null())
    known_codes = targets["code"]
    return zeros_lost(without_target.filter(~pl.col("code").is_in(known_codes.implode())), known_codes)


def _link_encounters(rows: pl.DataFrame, bucket: PcornetBucket) -> RowsAndFlow:
    """Link each row to its encounter or drop it; add the encounter's `start` and `end`."""
    stays = bucket.encounters.select("subject_id", "encounter_id", "start", "end", known=pl.lit(True))
    key = ["subject_id", "encounter_id"]
    with_stays = rows.join(stays, on=key, how="left", maintain_order="left").with_columns(
        time=pl.coalesce("time", "start"), named=pl.col("encounter_id").is_not_null()
    )
    is_unknown_stay = pl.col("named") & pl.col("known").is_null()
    notes = count_notes(with_stays, {"encounter_not_kept": is_unknown_stay})
    own_stays = with_stays.with_columns(encounter_id=pl.when("known").then("encounter_id")).drop(
        "start", "end", "known", "named"
    )
    lives = own_stays.join(bucket.people, on="subject_id", how="left", maintain_order="left")
    possible_rows, flow = drop_rows(
        lives, {"no_date": pl.col("time").is_null(), **out_of_range("time", bucket.end_of_data)}
    )
    linked_rows = link_by_day(possible_rows.with_columns(day=pl.col("time").dt.date()), bucket.encounters)
    usable_rows, link_flow = drop_rows(linked_rows, {"no_encounter": pl.col("encounter_id").is_null()})
    notes |= count_notes(
        usable_rows,
        {"linked_by_date": pl.col("covering") > 0, "linked_among_several": pl.col("covering") > 1},
    )
    total_flow = flow.then(link_flow).model_copy(update={"noted": notes})
    return usable_rows.join(stays.drop("known"), on=key, how="left", maintain_order="left"), total_flow


def _time() -> pl.Expr:
    """Return when an event happened; with a date only, on its encounter's first day, not before that encounter."""
    time, start = pl.col("time"), pl.col("start")
    begins = ~pl.col("timed") & (time.dt.date() == start.dt.date())
    return pl.when(begins).then(pl.max_horizontal(time, start)).otherwise(time)


def _available(kind: str) -> pl.Expr:
    """Return when an event became known: never before it happened; for a date only, by the end of its day.

    The code of a diagnosis or procedure is known at the end of its encounter, whoever recorded it, and never in an open
    encounter. A diagnosis dated on the last day is known with the encounter, a procedure by the end of that day.
    """
    event_end = pl.when(pl.col("timed")).then("time").otherwise(last_moment(pl.col("time").dt.date()))
    stay_end = clock.coded_at(is_open=pl.col("end").is_null())
    if kind == "DX":
        return pl.when(pl.col("time") <= stay_end).then(stay_end).otherwise(event_end)
    if kind == "PR":
        return pl.max_horizontal(stay_end, event_end)
    return pl.max_horizontal(pl.coalesce("known_at", event_end), _time())


def _map_codes(kind: str, rows: pl.DataFrame, crosswalks: PcornetCrosswalks) -> pl.DataFrame:
    if kind in ("DX", "PR"):
        targets = crosswalks.diagnoses if kind == "DX" else crosswalks.procedures
        version = pl.when(pl.col("vocab").str.starts_with("icd9")).then(9).otherwise(10)
        return to_icd10(rows.drop("mapped").with_columns(icd_version=version), targets)
    if kind == "MED":
        with_atc = rows.drop("mapped").join(
            crosswalks.drugs, on=["vocab", "code"], how="left", maintain_order="left"
        )
        return with_atc.rename({"atc": "mapped"})
    return rows


def _drop_copies(rows: pl.DataFrame) -> RowsAndFlow:
    """Keep one of each set of copies: the principal one, and of these the one known first."""
    key_columns = [name for name in rows.columns if name not in _COPY_COLUMNS]
    sorted_rows = rows.sort(*_COPY_COLUMNS, nulls_last=True, maintain_order=True)
    distinct_rows = sorted_rows.unique(key_columns, keep="first", maintain_order=True)
    return distinct_rows, Flow(
        source_rows=rows.height,
        kept_rows=distinct_rows.height,
        dropped={"repeated": rows.height - distinct_rows.height},
    )
