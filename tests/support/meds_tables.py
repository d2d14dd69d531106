"""Small tables with every oddity that a MEDS dataset must preserve, and the chain from MEDS to shards."""

import random
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl

from pipelines.corpus import build as corpus
from pipelines.corpus import shards
from pipelines.engine.buckets import write_buckets
from pipelines.events.split import TASK_SPLIT, assign_split
from pipelines.events.store import write_events
from pipelines.sources.meds import steps as from_meds
from schemas.cards import Flow, StepCard
from schemas.contract import write_table
from schemas.layout import Layout
from schemas.rules import DataRules
from schemas.tables.events import DRUG_LOOKUP, ENCOUNTERS, EVENTS, SUBJECTS

LABS = {"50912": ["mg/dL", "mg/L", None], "50971": ["mEq/L"], "51221": ["%"]}
DIAGNOSES = [
    ("icd9cm", "4019", "I10"),
    ("icd10cm", "E119", "E119"),
    ("icd9cm", "99999", None),
    ("icd10cm", "Z7901", "Z7901"),
]
DRUGS = ["aspirin", "heparin // 5,000 units", "snake oil"]


def make_layout(
    root: Path,
    rules: DataRules,
    *,
    seed: int = 1,
    subjects: int = 60,
    per_bucket: int = 13,
) -> Layout:
    """Write subjects, encounters, events and the drug lookup of synthetic patients as the MIMIC steps would."""
    layout, chance = Layout(root), random.Random(seed)
    people, stays, events = [], [], []
    for subject in range(10, 10 + 3 * subjects, 3):
        birth = datetime(2100 + chance.randint(0, 60), 7, 1)
        start = datetime(2170, 1, 1, 8) + timedelta(hours=chance.randint(0, 9000))
        dead = None
        for _ in range(chance.choice([0, 1, 2, 3])):
            stay = _stay(chance, subject, 1000 + len(stays), birth, start)
            dead = stay["death_time"].replace(hour=0, minute=0) if stay["death_time"] else dead
            stays.append(stay)
            events += _events(chance, stay)
            start += timedelta(days=chance.randint(1, 300), minutes=chance.randint(0, 99))
        people.append(
            {
                "subject_id": subject,
                "birth_date": birth,
                "death_date": dead,
                "sex": chance.choice(["F", "M", None]),
            }
        )
        events.append(
            _event(subject, None, start, "LAB", "itemid", "50971", value=chance.random(), unit="mEq/L")
        )
    ids = pl.Series([person["subject_id"] for person in people])
    split = [
        assign_split(ids, *TASK_SPLIT).alias("split"),
        assign_split(ids, *rules.pretrain_split).alias("pretrain_split"),
    ]
    subject_table = pl.DataFrame(people, schema_overrides={"death_date": pl.Datetime("us")}).with_columns(
        split
    )
    write_table(subject_table.to_arrow(), layout.subjects, SUBJECTS, made_by="test")
    stay_table = pl.DataFrame(stays, schema=pl.Schema(ENCOUNTERS)).sort("subject_id", "start", "encounter_id")
    write_table(stay_table.to_arrow(), layout.encounters, ENCOUNTERS, made_by="test")
    lookup = pl.DataFrame({"name": ["aspirin"], "atc": ["B01AC06"], "rows": [3]})
    write_table(lookup.to_arrow(), layout.drug_lookup, DRUG_LOOKUP, made_by="test")
    write_buckets(ids, layout, subjects_per_bucket=per_bucket)
    _write_events(layout, pl.DataFrame(events, schema=pl.Schema(EVENTS)), ids, per_bucket)
    return layout


def _write_events(layout: Layout, events: pl.DataFrame, ids: pl.Series, per_bucket: int) -> None:
    layout.events.mkdir()
    for bucket in range(-(-len(ids) // per_bucket)):
        inside = events.filter(
            pl.col("subject_id").is_in(ids[bucket * per_bucket : (bucket + 1) * per_bucket].implode())
        )
        for kind in ("DX", "PR", "MED", "LAB"):
            write_events(inside.filter(pl.col("kind") == kind), layout.events, kind, bucket, made_by="test")
    rows = dict(events["kind"].value_counts().iter_rows())
    flows = {kind: Flow(source_rows=count, kept_rows=count) for kind, count in rows.items()}
    counts = {"events": events.height}
    shards.write_card(StepCard(step="events", contract="events/1", flows=flows, counts=counts), layout)


def _stay(chance: random.Random, subject: int, stay: int, birth: datetime, start: datetime) -> dict:
    is_open = stay % 17 == 0
    died = chance.random() < (0.5 if is_open else 0.2)
    end = None if is_open else start + timedelta(minutes=chance.randint(60, 9000))
    return {
        "subject_id": subject,
        "encounter_id": stay,
        "start": start,
        "end": end,
        "type": None,
        "discharge_status": None,
        "died": died,
        "death_time": (end or start) - timedelta(minutes=5) if died and chance.random() < 0.7 else None,
        "age_years": float(start.year - birth.year),
        "race": chance.choice(["WHITE", "BLACK/AFRICAN AMERICAN", None]),
        "insurance": chance.choice(["Medicare", None]),
        "admission_type": chance.choice(["EW EMER.", "URGENT", None]),
    }


def _events(chance: random.Random, stay: dict) -> list[dict]:
    key, start = (stay["subject_id"], stay["encounter_id"]), stay["start"]
    end = stay["end"] or start
    rows = []
    for place in range(chance.randint(0, 6)):
        vocab, code, target = chance.choice(DIAGNOSES)
        rows.append(_event(*key, start, "DX", vocab, code, mapped=target, available_at=end, rank=place + 1))
        day = start.replace(hour=0, minute=0)
        rows.append(
            _event(
                *key,
                day,
                "PR",
                "icd10pcs",
                "5A1221Z",
                mapped="5A1221Z",
                available_at=max(end, day + timedelta(days=1)),
                rank=place,
            )
        )
    for place in range(chance.randint(0, 20)):
        time = start + timedelta(minutes=30 * chance.randint(-4, 20))
        rows.append(_event(*key, time, "MED", "name", chance.choice(DRUGS), rank=place))
        item = chance.choice(list(LABS))
        unit, value = chance.choice(LABS[item]), chance.choice([0.1, 7.1, chance.gauss(100, 30), 1e300])
        rows.append(
            _event(
                *key,
                time,
                "LAB",
                "itemid",
                item,
                value=value,
                unit=unit,
                rank=place,
                available_at=time + timedelta(hours=1),
            )
        )
    return rows


def _event(
    subject: int, stay: int | None, time: datetime, kind: str, vocab: str, code: str, **columns: object
) -> dict:
    row = {"mapped": None, "value": None, "unit": None, "rank": None, "available_at": time, **columns}
    return {
        "subject_id": subject,
        "encounter_id": stay,
        "time": time,
        "kind": kind,
        "vocab": vocab,
        "code": code,
        **row,
    }


def read_meds(
    folder: Path,
    layout: Layout,
    rules: DataRules,
    *,
    column: str | None = None,
    gap_hours: float = 24.0,
    per_bucket: int = 7,
) -> Layout:
    """Run the steps from a MEDS dataset to events."""
    dataset = from_meds.find_dataset(folder, column)
    from_meds.inspect_raw(dataset, layout)
    from_meds.extract_subjects(dataset, layout, rules, subjects_per_bucket=per_bucket)
    from_meds.extract_encounters(dataset, layout, gap_hours=gap_hours)
    from_meds.extract_events(dataset, layout, rules)
    return layout


def write_shards(layout: Layout, rules: DataRules) -> Layout:
    corpus.fit_vocab(layout, rules)
    corpus.write_seqset(layout, rules)
    return layout
