"""The events of a source on disk: a file for each kind and bucket, in one order whatever order the rows came in."""

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from schemas.contract import contract_files, write_table
from schemas.events import EVENTS, KINDS

_FIRST, _REST = ("subject_id", "time", "rank"), ("code", "encounter_id", "mapped", "value", "unit", "vocab")


def in_order(events: pl.DataFrame) -> pl.DataFrame:
    """Sort by subject, time, rank (null last), then by everything else, so that equal input gives equal bytes."""
    keys = [
        events["rank"].fill_null(np.iinfo(np.int64).max).to_numpy(),
        events["time"].to_physical().to_numpy(),
        events["subject_id"].to_numpy(),
    ]
    order = np.lexsort(keys)
    tied = np.ones(max(events.height - 1, 0), dtype=bool)
    for key in keys:
        placed = key[order]
        tied &= placed[1:] == placed[:-1]
    if tied.any():  # comparing texts is slow, and hardly ever needed
        return events.sort(*_FIRST, *_REST, "available_at", nulls_last=True)
    return events[order]


def write_events(events: pl.DataFrame, folder: Path, kind: str, bucket: int, *, made_by: str) -> None:
    """Write one kind's events of one bucket, in order, as events/1."""
    write_table(in_order(events).to_arrow(), events_file(folder, kind, bucket), EVENTS, made_by=made_by)


def events_file(folder: Path, kind: str, bucket: int) -> Path:
    """Return where one kind's events of one bucket lie."""
    return folder / f"{kind}-{bucket:05}.parquet"


def kinds_of(folder: Path) -> tuple[str, ...]:
    """Return the kinds a folder of events holds, in the order of KINDS.

    Raises:
        ContractError: there are no events.
    """
    found = {file.name.split("-")[0] for file in contract_files(folder, EVENTS)}
    return tuple(kind for kind in KINDS if kind in found)


def read_events(folder: Path, kind: str, bucket: int, *columns: str) -> pa.Table:
    """Return columns of one kind's events of one bucket in order; repeated text as dictionaries."""
    text = [name for name in columns if pa.types.is_string(EVENTS.field(name).type)]
    file = events_file(folder, kind, bucket)
    return (
        pq.read_table(file, columns=list(columns), read_dictionary=text).unify_dictionaries().combine_chunks()
    )


def scan_table(path: Path, schema: pa.Schema) -> pl.LazyFrame:
    """Return a table under its contract to filter and select from, of which only what is asked for is read.

    Raises:
        ContractError: see `contract_files`.
    """
    return pl.scan_parquet(contract_files(path, schema)).select(schema.names)
