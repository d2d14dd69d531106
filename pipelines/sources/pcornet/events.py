"""The rows of a bucket, held against its patients' lives and encounters, to events/1."""

from dataclasses import dataclass
from datetime import date

import polars as pl

from pipelines.engine.drop import sift
from pipelines.events import clock
from pipelines.events.code_mapping import to_icd10, zeros_lost
from pipelines.sources.pcornet.encounters import out_of_range
from pipelines.sources.pcornet.linking import link
from pipelines.sources.pcornet.times import last_moment
from pipelines.sources.pcornet.words import counted
from schemas.cards import Flow
from schemas.tables.events import EVENTS

_NOT_OF_AN_EVENT = ("rank", "available_at")  # copies of one row may differ in these

Sifted = tuple[pl.DataFrame, Flow]


@dataclass(frozen=True)
class Crosswalks:
    """What codes are mapped by; each may be empty."""

    diagnoses: pl.DataFrame  # code, mapped: ICD-9-CM -> ICD-10-CM
    procedures: pl.DataFrame  # ICD-9-PCS -> ICD-10-PCS
    drugs: pl.DataFrame  # vocab, code, atc


@dataclass(frozen=True)
class Bucket:
    """The patients of one bucket, their encounters, and until when anything is complete."""

    people: pl.DataFrame  # subject_id, birth_date, death_date?
    encounters: pl.DataFrame  # encounters/1
    end_of_data: date


def events(kind: str, rows: pl.DataFrame, bucket: Bucket, crosswalks: Crosswalks) -> Sifted:
    """Return the events of one table in one bucket, each once.

    Args:
        kind: of all of them.
        rows: from `event_rows`.
        bucket: whose they are.
        crosswalks: see there.
    """
    placed, flow = _placed(rows, bucket)
    timed = placed.with_columns(time=_time(), available_at=_available(kind))
    coded = _mapped(kind, timed, crosswalks)
    told = coded.with_columns(kind=pl.lit(kind, pl.Enum([kind]))).select(EVENTS.names)
    once, repeats = _without_copies(told)
    noted = flow.noted | unmapped(kind, once) | without_zeros(kind, once, crosswalks)
    return once, flow.then(repeats).model_copy(update={"noted": noted})


def unmapped(kind: str, events: pl.DataFrame) -> dict[str, int]:
    """Return how many codes no crosswalk leads anywhere, where that leaves an event without a token."""
    reasons = {"DX": "not_in_gem", "PR": "not_in_gem"}
    return {reasons[kind]: events["mapped"].null_count()} if kind in reasons else {}


def without_zeros(kind: str, events: pl.DataFrame, crosswalks: Crosswalks) -> dict[str, int]:
    """Return how many ICD-9 codes the crosswalk knows only with zeros before them, or behind."""
    if kind not in ("DX", "PR"):
        return {}
    targets = crosswalks.diagnoses if kind == "DX" else crosswalks.procedures
    unmapped = events.filter(pl.col("vocab").str.starts_with("icd9") & pl.col("mapped").is_null())
    known = targets["code"]
    return zeros_lost(unmapped.filter(~pl.col("code").is_in(known.implode())), known)


def _placed(rows: pl.DataFrame, bucket: Bucket) -> Sifted:
    """Give each row its encounter, or drop it; adds the encounter's `start` and `end`."""
    stays = bucket.encounters.select("subject_id", "encounter_id", "start", "end", known=pl.lit(True))
    key = ["subject_id", "encounter_id"]
    named = rows.join(stays, on=key, how="left", maintain_order="left").with_columns(
        time=pl.coalesce("time", "start"), named=pl.col("encounter_id").is_not_null()
    )
    dropped = pl.col("named") & pl.col("known").is_null()
    noted = counted(named, {"encounter_not_kept": dropped})
    own = named.with_columns(encounter_id=pl.when("known").then("encounter_id")).drop(
        "start", "end", "known", "named"
    )
    lives = own.join(bucket.people, on="subject_id", how="left", maintain_order="left")
    alive, flow = sift(
        lives, {"no_date": pl.col("time").is_null(), **out_of_range("time", bucket.end_of_data)}
    )
    linked = link(alive.with_columns(day=pl.col("time").dt.date()), bucket.encounters)
    kept, rest = sift(linked, {"no_encounter": pl.col("encounter_id").is_null()})
    noted |= counted(
        kept, {"linked_by_date": pl.col("covering") > 0, "linked_among_several": pl.col("covering") > 1}
    )
    whole = flow.then(rest).model_copy(update={"noted": noted})
    return kept.join(stays.drop("known"), on=key, how="left", maintain_order="left"), whole


def _time() -> pl.Expr:
    """Return when an event happened: of a date alone, on the day its encounter began, not before that."""
    time, start = pl.col("time"), pl.col("start")
    begins = ~pl.col("timed") & (time.dt.date() == start.dt.date())
    return pl.when(begins).then(pl.max_horizontal(time, start)).otherwise(time)


def _available(kind: str) -> pl.Expr:
    """Return when an event could be known: never before it happened, and of a date alone by the end of its day.

    The code of a diagnosis or procedure is known when its encounter is over, whoever wrote it, and of an open encounter
    never. A diagnosis of the last day is known with the encounter, a procedure by the end of that day.
    """
    own = pl.when(pl.col("timed")).then("time").otherwise(last_moment(pl.col("time").dt.date()))
    over = clock.coded_at(is_open=pl.col("end").is_null())
    if kind == "DX":
        return pl.when(pl.col("time") <= over).then(over).otherwise(own)
    if kind == "PR":
        return pl.max_horizontal(over, own)
    return pl.max_horizontal(pl.coalesce("known_at", own), _time())


def _mapped(kind: str, rows: pl.DataFrame, crosswalks: Crosswalks) -> pl.DataFrame:
    if kind in ("DX", "PR"):
        targets = crosswalks.diagnoses if kind == "DX" else crosswalks.procedures
        version = pl.when(pl.col("vocab").str.starts_with("icd9")).then(9).otherwise(10)
        return to_icd10(rows.drop("mapped").with_columns(icd_version=version), targets)
    if kind == "MED":
        found = rows.drop("mapped").join(
            crosswalks.drugs, on=["vocab", "code"], how="left", maintain_order="left"
        )
        return found.rename({"atc": "mapped"})
    return rows


def _without_copies(rows: pl.DataFrame) -> Sifted:
    """Keep each event once: of copies the principal one, and of these what was known first."""
    same = [name for name in rows.columns if name not in _NOT_OF_AN_EVENT]
    ordered = rows.sort(*_NOT_OF_AN_EVENT, nulls_last=True, maintain_order=True)
    once = ordered.unique(same, keep="first", maintain_order=True)
    return once, Flow(
        source_rows=rows.height, kept_rows=once.height, dropped={"repeated": rows.height - once.height}
    )
