"""The events of a source on disk: one file per kind and bucket, in an order independent of the input order."""

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.engine.sort import order_of
from schemas.contract import listed_files, readable_files, write_table
from schemas.io.paths import scan_parquet
from schemas.io.verify import verified
from schemas.tables.events import EVENTS, KINDS

_FIRST, _REST = ("subject_id", "time", "rank"), ("code", "encounter_id", "mapped", "value", "unit", "vocab")


def sort_events(events: pl.DataFrame) -> pl.DataFrame:
    """Sort by subject, time, rank (nulls last), then by all other columns, so that equal input gives equal bytes."""
    return _sort_with_ties(events)[0]


def _sort_with_ties(events: pl.DataFrame) -> tuple[pl.DataFrame, bool]:
    """Return the sorted events, and whether some share subject, time and rank."""
    if events["value"].dtype.is_float():
        # -0.0 becomes 0.0, so that equal values have equal bytes; polars optimizes `+ 0.0` away
        value = pl.col("value")
        events = events.with_columns(value=pl.when(value == 0.0).then(0.0).otherwise(value))
    falls, has_ties = _compare(_keys(events))
    if falls:  # the files of some providers are already sorted
        events = events[order_of(_keys(events))]
        _, has_ties = _compare(_keys(events))
    if has_ties:  # comparing texts is slow and rarely needed
        return events.sort(*_FIRST, *_REST, "available_at", nulls_last=True), True
    return events, False


def _keys(events: pl.DataFrame) -> list[np.ndarray]:
    rank = events["rank"]
    last = min(int(rank.drop_nulls().to_numpy().max(initial=0)) + 1, np.iinfo(np.int64).max)
    return [
        events["subject_id"].to_numpy(),
        events["time"].to_physical().to_numpy(),
        rank.fill_null(last).to_numpy(),
    ]


def _compare(keys: list[np.ndarray]) -> tuple[bool, bool]:
    """Return whether any row sorts below the row before it, and whether any two adjacent rows have equal keys."""
    falls, equal = False, np.ones(max(len(keys[0]) - 1, 0), dtype=bool)
    for key in keys:
        falls = falls or bool((equal & (key[1:] < key[:-1])).any())
        equal &= key[1:] == key[:-1]
    return falls, bool(equal.any())


def write_events(events: pl.DataFrame, folder: Path, kind: str, bucket: int, *, made_by: str) -> None:
    """Write the events of one kind and bucket, sorted, as events/1."""
    write_table(
        sort_events(events).to_arrow(),
        events_file(folder, kind, bucket),
        EVENTS,
        made_by=made_by,
        by_worker=True,
    )


def write_numbered(
    events: pl.DataFrame, folder: Path, kind: str, bucket: int, *, made_by: str
) -> pl.DataFrame:
    """Write events whose `rank` is the source's row number, and return what was written: sorted, without copies."""
    rows, has_ties = _sort_with_ties(events)
    if has_ties:
        first = pl.struct(pl.all()).is_first_distinct()
        rows = rows.filter(pl.col("rank").is_null() | first)
    file = events_file(folder, kind, bucket)
    write_table(rows.to_arrow(), file, EVENTS, made_by=made_by, by_worker=True)
    return rows


def count_repeated_ranks(events: pl.DataFrame) -> int:
    """Count row numbers of the source (`rank`) that occur more than once within the events of a patient.

    Numbers are not compared across patients: these may lie in different buckets, and the result must not depend on the
    bucket size. Sorted events are checked fastest: the numbers of a draw rise, so only the first and the last of each
    draw are compared with other draws.
    """
    ranks = events.select("subject_id", "rank").drop_nulls("rank")
    subject, number = (ranks[name].to_numpy() for name in ranks.columns)
    rising = (subject[1:] == subject[:-1]) & (number[1:] > number[:-1])
    firsts = np.flatnonzero(np.append(True, ~rising)[: len(number)])
    lasts = np.append(firsts[1:], len(number))[: len(firsts)] - 1
    order = order_of([subject[firsts], number[firsts]])
    firsts, lasts = firsts[order], lasts[order]
    if not ((subject[firsts[1:]] == subject[lasts[:-1]]) & (number[firsts[1:]] <= number[lasts[:-1]])).any():
        return 0
    order = order_of([subject, number])
    is_repeat = (np.diff(subject[order]) == 0) & (np.diff(number[order]) == 0)
    return int(is_repeat.sum())


def events_file(folder: Path, kind: str, bucket: int) -> Path:
    """Return the path of the events of one kind and bucket."""
    return folder / f"{kind}-{bucket:05}.parquet"


def kinds_of(folder: Path) -> tuple[str, ...]:
    """Return the kinds of events in a folder, in the order of KINDS.

    Raises:
        ContractError: there are no events.
    """
    kinds = {file.name.split("-")[0] for file in listed_files(folder, EVENTS)}
    return tuple(kind for kind in KINDS if kind in kinds)


def read_events(folder: Path, kind: str, bucket: int, *columns: str) -> pa.Table:
    """Read columns of the events of one kind and bucket, in order, with text columns dictionary-encoded."""
    text = [name for name in columns if pa.types.is_string(EVENTS.field(name).type)]
    file = verified(events_file(folder, kind, bucket))
    return (
        pq.read_table(file, columns=list(columns), read_dictionary=text).unify_dictionaries().combine_chunks()
    )


def scan_table(path: Path, schema: pa.Schema) -> pl.LazyFrame:
    """Return a lazy scan of a table under its contract; only the selected columns and rows are read.

    Raises:
        ContractError: see `readable_files`.
    """
    return scan_parquet(readable_files(path, schema)).select(schema.names)
