"""A small data folder that satisfies every expectation, for tests that then break one thing."""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa

from schemas.contract import write_table
from schemas.layout import Layout
from schemas.tables.code_names import CODE_NAMES
from schemas.tables.events import DRUG_LOOKUP, ENCOUNTERS, EVENTS, KINDS, SUBJECTS
from schemas.tables.labels import Features, Task, labels_schema
from schemas.tables.seqset import SEQSET
from schemas.tables.subject_years import SUBJECT_YEARS
from schemas.tables.vocab import SPECIALS, VOCAB

COHORT = "mimic_mortality"
START = datetime(2150, 3, 1, 8, 20)
DAY = timedelta(days=1)

Row = dict[str, object]
Tables = dict[str, list[Row]]


def tables() -> Tables:
    """Return the rows of every table: 30 subjects with two stays of three days each, 20 days apart."""
    subjects, encounters, events, seqset, labels = [], [], [], [], []
    for subject in range(1, 31):
        split = ("train", "val", "test")[subject % 3]
        subjects.append(
            {
                "subject_id": subject,
                "birth_date": datetime(2100, 7, 1),
                "death_date": None,
                "sex": "FM"[subject % 2],
                "split": split,
                "pretrain_split": split,
            }
        )
        for index in range(2):
            stay, start = subject * 10 + index, START + index * 20 * DAY
            encounters.append(_encounter(subject, stay, start))
            stay_events = _events(subject, stay, start)
            events += stay_events
            seqset.append(_set(subject, index, stay, start, stay_events))
            labels.append(_label(subject, stay, start, index == 0, split))
    return {
        "subjects": subjects,
        "encounters": encounters,
        "events": events,
        "drug_lookup": [{"name": "heparin", "atc": "B01AB01", "rows": 12}],
        "vocab": _vocab(),
        "seqset": seqset,
        "code_names": [{"vocab": "icd10cm", "code": "I10", "name": "Essential (primary) hypertension"}],
        "labels": labels,
        "subject_years": [{"subject_id": row["subject_id"], "years": "2011 - 2013"} for row in subjects],
    }


def write(rows: Tables, root: Path, task: Task | None = None) -> Layout:
    """Write the tables under a new layout, each under its contract."""
    layout, task = Layout(root), task or mortality()
    places = {
        "subjects": (layout.subjects, SUBJECTS),
        "encounters": (layout.encounters, ENCOUNTERS),
        "events": (layout.events / "part-0.parquet", EVENTS),
        "drug_lookup": (layout.drug_lookup, DRUG_LOOKUP),
        "vocab": (layout.vocab, VOCAB),
        "seqset": (layout.seqset / "shard-0.parquet", SEQSET),
        "code_names": (layout.code_names, CODE_NAMES),
        "labels": (layout.labels(COHORT), labels_schema(task.label_type)),
        "subject_years": (layout.subject_years, SUBJECT_YEARS),
    }
    for name, (path, schema) in places.items():
        table = pa.Table.from_pylist(rows[name], schema=schema)
        metadata = {"task": task.model_dump_json()} if name == "labels" else None
        write_table(table, path, schema, made_by="the test", metadata=metadata)
    return layout


def broken(root: Path, name: str, change: Callable[[list[Row]], object]) -> Layout:
    """Write the tables after applying `change` to the rows of one of them."""
    rows = tables()
    change(rows[name])
    return write(rows, root)


def mortality(clock: str = "available_at", **changes: object) -> Task:
    return Task(
        **{
            "cohort": COHORT,
            "about": "death in the stay",
            "label_type": "bool",
            "classes": ("false", "true"),
            "features": Features(clock=clock),
            "predict_at": "index.start + 24 hours",
            "predict_anchor": "index.start",
            "predict_offset_us": 86_400_000_000,
            "cohort_sha256": "0" * 64,
            **changes,
        }
    )


def _encounter(subject: int, stay: int, start: datetime) -> Row:
    return {
        "subject_id": subject,
        "encounter_id": stay,
        "start": start,
        "end": start + 3 * DAY,
        "type": None,
        "discharge_status": None,
        "died": False,
        "death_time": None,
        "age_years": 49.7,
        "race": None,
        "insurance": None,
        "admission_type": "URGENT",
    }


def _events(subject: int, stay: int, start: datetime) -> list[Row]:
    def event(
        kind: str, vocab: str, code: str, time: datetime, available_at: datetime, **values: object
    ) -> Row:
        empty = {"mapped": code, "value": None, "unit": None, "rank": 1}
        common = {"subject_id": subject, "encounter_id": stay, "time": time, "available_at": available_at}
        return {**common, "kind": kind, "vocab": vocab, "code": code, **empty, **values}

    noon = start + timedelta(hours=4)
    midnight = datetime(start.year, start.month, start.day) + DAY
    return [
        event("DX", "icd10cm", "I10", start, start + 3 * DAY),
        event("MED", "name", "heparin", noon, noon, mapped="B01AB01"),
        event("LAB", "itemid", "50912", noon, noon + timedelta(hours=1), value=1.1, unit="mg/dL"),
        event("PR", "icd10pcs", "0DTJ4ZZ", midnight, start + 3 * DAY),
    ]


def _vocab() -> list[Row]:
    nothing = dict.fromkeys(("code", "unit", "low", "high", "parent"))
    specials = [
        {**nothing, "token_id": number, "token": token, "kind": "SPECIAL", "count_train": 0}
        for number, token in enumerate(SPECIALS)
    ]
    codes = [
        {
            **nothing,
            "token": token,
            "kind": token.split(":")[0],
            "code": token.split(":")[1],
            "count_train": 20,  # two stays for each of ten subjects
        }
        for token in ("DX:I10", "PR:0DTJ4ZZ", "MED:B01AB01")
    ]
    deciles = [
        {
            "token": f"LAB:50912_Q{decile}",
            "kind": "LAB",
            "code": "50912",
            "unit": "mg/dL",
            "low": None if decile == 1 else float(decile),
            "high": None if decile == 10 else float(decile + 1),
            "parent": None,
            "count_train": 6,
        }
        for decile in range(1, 11)
    ]
    rare = {**nothing, "token_id": None, "token": "DX:I109", "kind": "DX", "code": "I109", "count_train": 1}
    with_ids = [{**row, "token_id": number} for number, row in enumerate(codes + deciles, len(SPECIALS))]
    return [*specials, *with_ids, rare]


def _set(subject: int, index: int, stay: int, start: datetime, events: list[Row]) -> Row:
    times = [event["time"] for event in events]
    return {
        "subject_id": subject,
        "set_index": index,
        "encounter_id": stay,
        "start": start,
        "end": start + 3 * DAY,
        "days_since_prior": 20.0 * index,
        "days_since_first": 20.0 * index,
        "admission_type": "URGENT",
        "tokens": [5, 7, 8, 6],
        "kinds": [KINDS.index(event["kind"]) for event in events],
        "hours": [(time - start) / timedelta(hours=1) for time in times],
        "times": times,
        "available": [event["available_at"] for event in events],
        "flags": 0,
    }


def _label(subject: int, stay: int, start: datetime, died: bool, split: str) -> Row:
    return {
        "subject_id": subject,
        "index_encounter": stay,
        "index_start": start,
        "predict_at": start + DAY,
        "label": died,
        "outcome_time": start + 3 * DAY if died else None,
        "follow_up_days": 2.0,
        "split": split,
    }
