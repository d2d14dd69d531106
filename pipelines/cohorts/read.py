"""Reads the tables of a cohort, one bucket of patients at a time, and only the events the cohort uses."""

from datetime import datetime
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.cohorts.tables import Tables, any_of, matches
from pipelines.engine.buckets import Buckets
from pipelines.events.code_mapping import code_events
from pipelines.events.store import events_file, kinds_of, scan_table
from schemas.cohort import ClassOf, CodeList, Cohort, IndexHas, LabelsOf
from schemas.contract import read_table, table_metadata
from schemas.io.paths import scan_parquet
from schemas.io.verify import is_written, verified
from schemas.layout import Layout
from schemas.sources import sources
from schemas.tables.events import DRUG_LOOKUP, ENCOUNTERS, EVENTS, SUBJECTS

_SUBJECT = ("subject_id", "birth_date", "death_date", "sex", "split")
_ENCOUNTER = (
    *("subject_id", "encounter_id", "start", "end"),
    *("type", "discharge_status", "died", "death_time"),
    *("admission_type", "insurance", "race"),
)
_EVENT = (
    *("subject_id", "encounter_id", "time", "available_at"),
    *("kind", "vocab", "code", "mapped", "value", "unit", "rank"),
)


def reads_diagnoses(cohort: Cohort) -> bool:
    """Return whether a cohort needs diagnoses beyond those of its code lists."""
    principal = any(
        isinstance(condition, IndexHas) and condition.index_has == "principal_dx"
        for member in cohort.family
        for _, condition in member.plain_conditions
    )
    return principal or isinstance(cohort.outcome, ClassOf | LabelsOf)


def _code_lists(cohort: Cohort) -> list[CodeList]:
    """Return the code lists of a cohort and of those it names."""
    return [codes for member in cohort.family for codes in member.codes.values()]


def kinds_to_read(cohort: Cohort, layout: Layout) -> tuple[str, ...]:
    """Return the kinds of events that exist and that the cohort needs; no others are read.

    Raises:
        ContractError: there are no events, or they have another contract.
    """
    vocabs = {vocab for codes in _code_lists(cohort) for vocab in codes.patterns}
    kinds = {"DX"} if reads_diagnoses(cohort) else set()
    kinds |= {"MED"} if "atc" in vocabs else set()
    return tuple(
        kind
        for kind in kinds_of(layout.events)
        if kind in kinds or any(not vocabs.isdisjoint(_vocabs_of(file)) for file in _files(layout, kind))
    )


def _files(layout: Layout, kind: str) -> list[Path]:
    return sorted(layout.events.glob(f"{kind}-*.parquet"))


def _vocabs_of(file: Path) -> set[str]:
    """Return the vocabularies of the codes in a file, read from the dictionary without the rows."""
    words = pq.read_table(verified(file), columns=["vocab"], read_dictionary=["vocab"])["vocab"]
    return {word for chunk in words.chunks for word in chunk.dictionary.to_pylist()}


def read_patients(cohort: Cohort, layout: Layout) -> Tables:
    """Return the subjects and encounters of all patients, without events, to check what can be answered."""
    return Tables(
        subjects=scan_table(layout.subjects, SUBJECTS),
        encounters=scan_table(layout.encounters, ENCOUNTERS),
        events=_frame(EVENTS.empty_table()).lazy(),
        codes=cohort.codes,
        end_of_data=_end_of_data(layout.encounters),
        death_follow_up_days=sources()[cohort.source].death_follow_up_days,
    )


def read_bucket(cohort: Cohort, layout: Layout, kinds: tuple[str, ...], bucket: int) -> Tables:
    """Return the tables of one bucket of patients, with only the events of these kinds that the cohort needs."""
    inside = Buckets.read(layout).is_in(bucket)
    filters = [*map(matches, _code_lists(cohort))]
    if reads_diagnoses(cohort):
        filters.append(pl.col("kind") == "DX")
    is_read = any_of(filters) if filters else pl.lit(False)
    return Tables(
        subjects=scan_table(layout.subjects, SUBJECTS).select(_SUBJECT).filter(inside).collect().lazy(),
        encounters=scan_table(layout.encounters, ENCOUNTERS)
        .select(_ENCOUNTER)
        .filter(inside)
        .collect()
        .lazy(),
        events=scan_events(layout, kinds, bucket).filter(is_read).collect().lazy(),
        codes=cohort.codes,
        end_of_data=_end_of_data(layout.encounters),
        death_follow_up_days=sources()[cohort.source].death_follow_up_days,
    )


def codes_in_bucket(layout: Layout, kinds: tuple[str, ...], vocab: str, bucket: int) -> dict[str, int]:
    """Return the codes of a vocabulary (ATC: mapped codes) in a bucket, with the number of patients of each."""
    in_vocabulary, code = pl.col("vocab") == vocab, "code"
    if vocab == "atc":
        in_vocabulary, code = pl.col("kind") == "MED", "mapped"
    events = scan_events(layout, kinds, bucket).filter(in_vocabulary & pl.col(code).is_not_null())
    counts = events.group_by(pl.col(code).alias("of")).agg(pl.col("subject_id").n_unique())
    return dict(counts.collect().iter_rows())


def scan_events(layout: Layout, kinds: tuple[str, ...], bucket: int) -> pl.LazyFrame:
    """Scan the events of one bucket and these kinds, with drug names mapped if there is a drug lookup."""
    nothing = _frame(EVENTS.empty_table()).lazy().select(_EVENT)
    files = {
        kind: scan_parquet(verified(events_file(layout.events, kind, bucket))).select(_EVENT)
        for kind in kinds
    }
    if "MED" in files and is_written(layout.drug_lookup):
        drugs = _frame(read_table(layout.drug_lookup, DRUG_LOOKUP)).lazy()
        files["MED"] = code_events(files["MED"], drugs)
    return pl.concat([nothing, *files.values()])


def _end_of_data(encounters: Path) -> datetime | None:
    """Return the end of data of the whole source from the metadata of the encounters; None if not stated."""
    timestamp = table_metadata(encounters).get("end_of_data")
    return None if timestamp is None else datetime.fromisoformat(timestamp)


def _frame(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame
