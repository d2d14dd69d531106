"""Shards of random patients, with sizes as in MIMIC-IV, on which the loader is measured."""

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.model.patients import PatientArrays, draw
from schemas.cards import ShardCard
from schemas.contract import contract_name, write_table
from schemas.tables.events import KINDS
from schemas.tables.seqset import SEQSET

VOCAB_SIZE = 20_000
MOST_SETS, MOST_EVENTS = 240, 20_000  # limits of sets per patient and of events per set
PATIENTS_PER_SHARD = 4_000
TYPES = 9  # of admission, as many as in MIMIC-IV
_HOUR_US = 3_600_000_000
_DAY_US = 24 * _HOUR_US


def write_shards(folder: Path, patients: int, *, seed: int = 42) -> None:
    """Write shards of `PATIENTS_PER_SHARD` patients each, with their cards; the same seed gives the same sets."""
    for number, first in enumerate(range(0, patients, PATIENTS_PER_SHARD)):
        rng = np.random.default_rng([seed, number])
        sets = draw_sets(first, min(PATIENTS_PER_SHARD, patients - first), rng)
        file = folder / f"shard-{number:05}.parquet"
        write_table(sets, file, SEQSET, made_by="the benchmark")
        card = ShardCard(
            contract=contract_name(SEQSET),
            file=file.name,
            subjects=pc.count_distinct(sets["subject_id"]).as_py(),
            sets=len(sets),
            tokens=pc.sum(pc.list_value_length(sets["tokens"])).as_py(),
            file_sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
            vocab_sha256=hashlib.sha256(b"made up").hexdigest(),
            config_sha256=hashlib.sha256(b"made up").hexdigest(),
        )
        file.with_suffix(".card.json").write_text(card.model_dump_json())


def draw_sets(first_subject: int, subjects: int, rng: np.random.Generator) -> pa.Table:
    """Draw seqset/2 rows; a set may be as long as the longest in MIMIC-IV."""
    patients = draw(subjects, rng, vocab_size=VOCAB_SIZE, max_sets=MOST_SETS, max_set_events=MOST_EVENTS)
    sets = len(patients.events_per_set)
    begins = np.cumsum(patients.sets_per_subject) - patients.sets_per_subject
    set_index = np.arange(sets) - np.repeat(begins, patients.sets_per_subject)
    start_us = (patients.days * _DAY_US).astype(np.int64)
    columns = {
        "subject_id": first_subject + np.repeat(np.arange(subjects), patients.sets_per_subject),
        "set_index": set_index,
        "encounter_id": first_subject * 1_000 + np.arange(sets),
        "start": pa.array(start_us).cast(pa.timestamp("us")),
        "end": pa.array(start_us + 5 * _DAY_US).cast(pa.timestamp("us")),
        "days_since_prior": np.where(set_index, np.diff(patients.days, prepend=0.0), 0.0).astype(np.float32),
        "days_since_first": patients.days.astype(np.float32),
        "admission_type": pa.array([f"TYPE {number}" for number in range(TYPES)]).take(
            pa.array(np.arange(sets) % TYPES)
        ),
        "flags": np.zeros(sets, dtype=np.int32),
    }
    return pa.table(columns | _events(patients, start_us, rng))


def _events(patients: PatientArrays, start_us: np.ndarray, rng: np.random.Generator) -> dict[str, pa.Array]:
    times_us = np.repeat(start_us, patients.events_per_set) + (patients.hours * _HOUR_US).astype(np.int64)
    columns = {
        "tokens": patients.tokens.astype(np.uint32),
        "kinds": rng.integers(0, len(KINDS), len(patients.tokens), dtype=np.uint8),
        "hours": patients.hours,
        "times": pa.array(times_us).cast(pa.timestamp("us")),
        "available": pa.array(times_us + _HOUR_US).cast(pa.timestamp("us")),
    }
    offsets = pa.array(np.concatenate([[0], np.cumsum(patients.events_per_set)]), pa.int32())
    return {name: pa.ListArray.from_arrays(offsets, pa.array(of)) for name, of in columns.items()}
