"""Shards of made-up patients, as many and as full as MIMIC-IV's: what the loader is measured on."""

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.cards import ShardCard
from schemas.contract import contract_name, write_table
from schemas.events import KINDS
from schemas.seqset import SEQSET
from schemas.vocab import SPECIALS

VOCAB_SIZE = 20_000
SETS_PER_PATIENT = 546_000 / 223_000
EVENTS_PER_SET, SPREAD = 226, 0.7  # mean, and standard deviation of the logarithm
PATIENTS_PER_SHARD = 4_000
_HOUR_US = 3_600_000_000
_DAY_US = 24 * _HOUR_US


def write_shards(folder: Path, patients: int, *, seed: int = 42) -> None:
    """Write shards of `PATIENTS_PER_SHARD` patients each, with their cards; the same seed gives the same sets."""
    for number, first in enumerate(range(0, patients, PATIENTS_PER_SHARD)):
        rng = np.random.default_rng([seed, number])
        sets = draw(first, min(PATIENTS_PER_SHARD, patients - first), rng)
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


def draw(first_subject: int, subjects: int, rng: np.random.Generator) -> pa.Table:
    """Draw seqset/1 rows: sets a few months apart, in them events some minutes apart, the common tokens often."""
    per_subject = rng.geometric(1 / SETS_PER_PATIENT, subjects)
    begins = np.repeat(np.cumsum(per_subject) - per_subject, per_subject)
    set_index = np.arange(len(begins)) - begins
    gap_days = np.where(set_index, rng.exponential(90, len(begins)), 0)
    days = np.cumsum(gap_days)
    days -= days[begins]
    start_us = (days * _DAY_US).astype(np.int64)
    sizes = rng.lognormal(np.log(EVENTS_PER_SET) - SPREAD**2 / 2, SPREAD, len(begins)).astype(np.int64)
    sets = {
        "subject_id": first_subject + np.repeat(np.arange(subjects), per_subject),
        "set_index": set_index,
        "encounter_id": first_subject * 1_000 + np.arange(len(begins)),
        "start": pa.array(start_us).cast(pa.timestamp("us")),
        "end": pa.array(start_us + 5 * _DAY_US).cast(pa.timestamp("us")),
        "days_since_prior": gap_days.astype(np.float32),
        "days_since_first": days.astype(np.float32),
        "flags": np.zeros(len(begins), dtype=np.int32),
    }
    return pa.table(sets | _events(start_us, sizes, rng))


def _events(start_us: np.ndarray, sizes: np.ndarray, rng: np.random.Generator) -> dict[str, pa.Array]:
    ends = np.cumsum(sizes)
    events = int(ends[-1])
    hours = np.cumsum(rng.random(events))
    hours -= np.repeat(hours[np.minimum(ends - sizes, events - 1)], sizes)
    times_us = np.repeat(start_us, sizes) + (hours * _HOUR_US).astype(np.int64)
    common_first = (rng.random(events) ** 3 * (VOCAB_SIZE - len(SPECIALS))).astype(np.uint32)
    columns = {
        "tokens": common_first + np.uint32(len(SPECIALS)),
        "kinds": rng.integers(0, len(KINDS), events, dtype=np.uint8),
        "hours": hours.astype(np.float32),
        "times": pa.array(times_us).cast(pa.timestamp("us")),
        "available": pa.array(times_us + _HOUR_US).cast(pa.timestamp("us")),
    }
    offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
    return {name: pa.ListArray.from_arrays(offsets, pa.array(of)) for name, of in columns.items()}
