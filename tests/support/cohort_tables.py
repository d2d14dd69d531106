"""Tiny tables for cohort tests: a few patients, a few stays, times on a grid that hits every boundary."""

import shutil
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
from hypothesis import strategies as st

from pipelines.cohorts.tables import Tables
from pipelines.engine.buckets import Buckets, write_buckets
from pipelines.events.store import events_file
from schemas.cohort import Cohort, parse_text
from schemas.contract import write_table
from schemas.layout import Layout
from schemas.tables.events import DRUG_LOOKUP, ENCOUNTERS, EVENTS, SUBJECTS

DAY_ZERO = datetime(2150, 1, 1)
HOUR, DAY, MICROSECOND = timedelta(hours=1), timedelta(days=1), timedelta(microseconds=1)
COHORT_FILES = Path(__file__).parents[2] / "assets" / "cohorts"

Row = dict[str, object]


def subject(subject_id: int, split: str = "train", death_date: datetime | None = None) -> Row:
    birth_date = datetime(2100, 7, 1)
    row = {"subject_id": subject_id, "birth_date": birth_date, "death_date": death_date, "sex": "F"}
    return {**row, "split": split, "pretrain_split": split}


def stay(
    encounter_id: int,
    start: datetime,
    end: datetime | None,
    *,
    died: bool = False,
    death_time: datetime | None = None,
    of: int = 1,
) -> Row:
    row: Row = dict.fromkeys(ENCOUNTERS.names)
    row |= {"subject_id": of, "encounter_id": encounter_id, "start": start, "end": end}
    return {**row, "died": died, "death_time": death_time}


def diagnosis(
    encounter_id: int, code: str, target: str | None, *, rank: int = 1, vocab: str = "icd9cm", of: int = 1
) -> Row:
    row: Row = dict.fromkeys(EVENTS.names)
    values = {"subject_id": of, "encounter_id": encounter_id, "time": DAY_ZERO, "available_at": DAY_ZERO}
    return {**row, **values, "kind": "DX", "vocab": vocab, "code": code, "mapped": target, "rank": rank}


def frame(rows: list[Row], schema: object) -> pl.DataFrame:
    empty = pl.from_arrow(schema.empty_table())  # type: ignore[attr-defined]
    assert isinstance(empty, pl.DataFrame)
    return pl.DataFrame(rows, schema=empty.schema)


def tables(subjects: list[Row], encounters: list[Row], events: list[Row], cohort: Cohort) -> Tables:
    return Tables(
        frame(subjects, SUBJECTS).lazy(),
        frame(encounters, ENCOUNTERS).lazy(),
        frame(events, EVENTS).lazy(),
        cohort.codes,
    )


def write(
    layout: Layout,
    subjects: list[Row],
    encounters: list[Row],
    events: list[Row],
    *,
    subjects_per_bucket: int = 4000,
) -> None:
    """Write the tables like extraction: events by kind and bucket, but in any order."""
    people, rows = frame(subjects, SUBJECTS), frame(events, EVENTS)
    for path, table, schema in (
        (layout.subjects, people, SUBJECTS),
        (layout.encounters, frame(encounters, ENCOUNTERS), ENCOUNTERS),
        (layout.drug_lookup, frame([], DRUG_LOOKUP), DRUG_LOOKUP),
    ):
        write_table(table.to_arrow(), path, schema, made_by="test")
    shutil.rmtree(layout.events, ignore_errors=True)
    ids = people["subject_id"].sort()
    for bucket in range(write_buckets(ids, layout, subjects_per_bucket=subjects_per_bucket)):
        bucket_rows = rows.filter(Buckets.read(layout).is_in(bucket))
        for kind in {"DX", *rows["kind"]}:
            file = events_file(layout.events, kind, bucket)
            write_table(bucket_rows.filter(kind=kind).to_arrow(), file, EVENTS, made_by="test")


def mimic(task: str, *changes: tuple[str, str]) -> Cohort:
    """Return one of the five tasks, with replacements in the text of its file."""
    text = (COHORT_FILES / f"mimic_{task}.yaml").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return parse_text(text, file=f"mimic_{task}.yaml")


CODES = [
    ("4019", "I10"),
    ("25000", "E119"),
    ("E8490", None),
    ("V5861", None),
    ("99999", "T888XXA"),
    ("I10", "I10"),
]
STARTS = [DAY_ZERO + days * DAY for days in range(0, 40, 5)]
LENGTHS = [None, HOUR, DAY, DAY + MICROSECOND, 2 * DAY, 5 * DAY, 7 * DAY, 7 * DAY + HOUR, 30 * DAY]


@st.composite
def patients(draw: st.DrawFn) -> tuple[list[Row], list[Row], list[Row]]:
    """Draw subjects, their stays (overlapping, open, at equal times) and the diagnoses of the stays."""
    subjects, encounters, events = [], [], []
    for of in range(1, draw(st.integers(0, 4)) + 1):
        dead = draw(st.sampled_from([None, None, DAY_ZERO + 20 * DAY]))
        subjects.append(subject(of, draw(st.sampled_from(["train", "val", "test"])), dead))
        for place in range(draw(st.integers(0, 5))):
            start, length = draw(st.sampled_from(STARTS)), draw(st.sampled_from(LENGTHS))
            end = None if length is None else start + length
            number = of * 100 + place
            died, dead_after = draw(st.booleans()), draw(st.sampled_from(LENGTHS))
            death_time = None if dead_after is None else start + dead_after
            encounters.append(stay(number, start, end, died=died, death_time=death_time, of=of))
            for code, target in draw(st.lists(st.sampled_from(CODES), max_size=4)):
                vocab = "icd10cm" if code == target else "icd9cm"
                rank = draw(st.integers(1, 3))
                events.append(diagnosis(number, code, target, rank=rank, vocab=vocab, of=of))
    return subjects, draw(st.permutations(encounters)), events
