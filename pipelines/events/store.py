"""The events of a source on disk: a file for each kind and bucket, in one order whatever order the rows came in."""

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


def in_order(events: pl.DataFrame) -> pl.DataFrame:
    """Sort by subject, time, rank (null last), then by everything else, so that equal input gives equal bytes."""
    return _in_order(events)[0]


def _in_order(events: pl.DataFrame) -> tuple[pl.DataFrame, bool]:
    """Return the sorted events, and whether some have subject, time and rank in common."""
    if events["value"].dtype.is_float():
        # of -0.0, which equals it, the same bytes; `+ 0.0` would not do: polars skips it
        value = pl.col("value")
        events = events.with_columns(value=pl.when(value == 0.0).then(0.0).otherwise(value))
    falls, has_ties = _compare(_keys(events))
    if falls:  # some providers' files lie in order
        events = events[order_of(_keys(events))]
        _, has_ties = _compare(_keys(events))
    if has_ties:  # comparing texts is slow, and hardly ever needed
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
    """Return whether a row's keys, the first one foremost, are below, and are equal to, those of the row before it."""
    falls, equal = False, np.ones(max(len(keys[0]) - 1, 0), dtype=bool)
    for key in keys:
        falls = falls or bool((equal & (key[1:] < key[:-1])).any())
        equal &= key[1:] == key[:-1]
    return falls, bool(equal.any())


def write_events(events: pl.DataFrame, folder: Path, kind: str, bucket: int, *, made_by: str) -> None:
    """Write one kind's events of one bucket, in order, as events/1."""
    write_table(
        in_order(events).to_arrow(),
        events_file(folder, kind, bucket),
        EVENTS,
        made_by=made_by,
        by_worker=True,
    )


def write_numbered(
    events: pl.DataFrame, folder: Path, kind: str, bucket: int, *, made_by: str
) -> pl.DataFrame:
    """Write events whose `rank` is the source's own number; return what was written: in order, no copy left."""
    rows, has_ties = _in_order(events)
    if has_ties:
        first = pl.struct(pl.all()).is_first_distinct()
        rows = rows.filter(pl.col("rank").is_null() | first)
    file = events_file(folder, kind, bucket)
    write_table(rows.to_arrow(), file, EVENTS, made_by=made_by, by_worker=True)
    return rows


def count_repeated_ranks(events: pl.DataFrame) -> int:
    """Return how many of a source's own numbers, `rank`, were there before in the same subject's events.

    Two subjects' are not compared: they may lie in two buckets, and what is refused must not hang on their size. Events
    in order are asked fastest: the numbers of a draw rise, and only their first and last are held against other draws'.
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
    """Return where one kind's events of one bucket lie."""
    return folder / f"{kind}-{bucket:05}.parquet"


def kinds_of(folder: Path) -> tuple[str, ...]:
    """Return the kinds a folder of events holds, in the order of KINDS.

    Raises:
        ContractError: there are no events.
    """
    kinds = {file.name.split("-")[0] for file in listed_files(folder, EVENTS)}
    return tuple(kind for kind in KINDS if kind in kinds)


def read_events(folder: Path, kind: str, bucket: int, *columns: str) -> pa.Table:
    """Return columns of one kind's events of one bucket in order; repeated text as dictionaries."""
    text = [name for name in columns if pa.types.is_string(EVENTS.field(name).type)]
    file = verified(events_file(folder, kind, bucket))
    return (
        pq.read_table(file, columns=list(columns), read_dictionary=text).unify_dictionaries().combine_chunks()
    )


def scan_table(path: Path, schema: pa.Schema) -> pl.LazyFrame:
    """Return a table under its contract to filter and select from, of which only what is asked for is read.

    Raises:
        ContractError: see `readable_files`.
    """
    return scan_parquet(readable_files(path, schema)).select(schema.names)
