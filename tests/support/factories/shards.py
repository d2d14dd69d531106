"""Tiny seqset/2 shards for tests."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from nest_model.data.seqsets import SeqSets
from schemas.cards import ShardCard
from schemas.contract import write_table
from schemas.io.hashing import file_sha256
from schemas.io.seal import unsealed
from schemas.tables.seqset import SEQSET

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
VOCAB_SHA256 = "a" * 64


def set_row(
    subject: int, index: int, encounter: int, start_us: int, events=(), end_us=None, admission_type=None
) -> dict:
    """Return a row of seqset/2; an event is (token, kind index, time_us, available_us)."""
    return {
        "subject_id": subject,
        "set_index": index,
        "encounter_id": encounter,
        "start": start_us,
        "end": end_us,
        "days_since_prior": float(index),
        "days_since_first": start_us / DAY_US,
        "admission_type": admission_type,
        "tokens": [event[0] for event in events],
        "kinds": [event[1] for event in events],
        "hours": [(event[2] - start_us) / HOUR_US for event in events],
        "times": [event[2] for event in events],
        "available": [event[3] for event in events],
        "flags": 0,
    }


def write_shards(
    folder: Path, rows: list[dict], *, shards: int = 1, vocab_sha256: str = VOCAB_SHA256
) -> Path:
    """Write the rows as `shards` files of whole patients, with their cards."""
    subjects = sorted({row["subject_id"] for row in rows})
    for number, part in enumerate(np.array_split(subjects, shards)):
        shard_rows = [row for row in rows if row["subject_id"] in part]
        arrays = {name: [row[name] for row in shard_rows] for name in SEQSET.names}
        table = pa.table({name: pa.array(values, SEQSET.field(name).type) for name, values in arrays.items()})
        file = folder / f"part-{number:05d}.parquet"
        write_table(table, file, SEQSET, made_by="test")
        card = ShardCard(
            contract="seqset/2",
            file=file.name,
            subjects=len(part),
            sets=len(shard_rows),
            tokens=sum(len(row["tokens"]) for row in shard_rows),
            file_sha256=file_sha256(file),
            vocab_sha256=vocab_sha256,
            config_sha256="0" * 64,
        )
        file.with_suffix(".card.json").write_text(card.model_dump_json())
    return folder


def rewrite_card(file: Path) -> None:
    """Update a shard's card after a test has changed the shard."""
    path = file.with_suffix(".card.json")
    card = ShardCard.model_validate_json(unsealed(path.read_text()))
    now = {"file": file.name, "file_sha256": file_sha256(file)}
    path.write_text(card.model_copy(update=now).model_dump_json())


def read_rows(folder: Path, rows: list[dict], **options) -> SeqSets:
    return SeqSets.read(write_shards(folder, rows, **options))
