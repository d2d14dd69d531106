"""Whose history is read, and as of when: the rows that embeddings, guesses and own labels are made for."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from nest_model.data.seqsets import SeqSets
from schemas.errors import InputError

TIME = pa.timestamp("us")
NAMES = {"index_encounter": "encounter_id", "at": "predict_at"}
"""Other names of columns, as tables of labels and of embeddings have them."""

SUFFIXES = (".parquet", ".csv")

At = Any
"""A moment for every patient (datetime, or ISO text), a table, or the path of one."""


@dataclass(frozen=True)
class Moments:
    """Patients, the last set of each that is read, and the moment as of which it is read."""

    subject_id: np.ndarray
    encounter_id: np.ndarray
    at_us: np.ndarray

    def __len__(self) -> int:
        return len(self.subject_id)

    @classmethod
    def of(cls, at: At, seqsets: SeqSets) -> "Moments":
        """Return the moments that a user asks for; without an encounter, the last set begun by the moment is read.

        Args:
            at: one moment for all patients, of whom those without a set by then are left out; or a table with
                subject_id, predict_at (or `at`) and, if it has that column, encounter_id (or index_encounter).

        Raises:
            InputError: it is neither, or a row's patient has no set by its moment.
        """
        if is_moment(at):
            moment_us = moment(at)
            subjects = seqsets.subject_id[seqsets.subject_offsets[:-1]]
            target = last_begun(seqsets, subjects, np.full(len(subjects), moment_us))
            sets = target[target >= 0]
            return cls(seqsets.subject_id[sets], seqsets.encounter_id[sets], np.full(len(sets), moment_us))
        where, table = read_index(at)
        columns = typed_columns(
            where, table, {"subject_id": pa.int64(), "encounter_id": pa.int64(), "predict_at": TIME}
        )
        refuse_missing(where, columns, "subject_id", "predict_at")
        subject_id = columns["subject_id"].to_numpy()
        at_us = columns["predict_at"].cast(pa.int64()).to_numpy()
        if "encounter_id" in columns:
            return cls(subject_id, columns["encounter_id"].to_numpy(), at_us)
        target = last_begun(seqsets, subject_id, at_us)
        if late := np.count_nonzero(target < 0):
            raise InputError(
                f"{where}: {late:,} of {len(target):,} rows name a patient who is not in these shards, or has no set "
                "by that moment; leave them out."
            )
        return cls(subject_id, seqsets.encounter_id[target], at_us)


def is_moment(at: At) -> bool:
    """Return whether this is one moment for all patients, and no table."""
    return isinstance(at, datetime) or (isinstance(at, str) and Path(at).suffix not in SUFFIXES)


def moment(at: datetime | str) -> int:
    """Return a moment in microseconds, as the shards count them: without a time zone.

    Raises:
        InputError: the text is no date, or the moment has a time zone.
    """
    try:
        value = datetime.fromisoformat(at) if isinstance(at, str) else at
    except ValueError:
        raise InputError("at is no date; write e.g. 2150-01-31 or '2150-01-31 12:00'.") from None
    if value.tzinfo is not None:
        raise InputError("at has a time zone, which the times of the shards do not have; leave it out.")
    return int(np.datetime64(value, "us").astype(np.int64))


def last_begun(seqsets: SeqSets, subject_id: np.ndarray, at_us: np.ndarray) -> np.ndarray:
    """Return the last set of each patient that had begun by the moment, -1 where there is none: i64 [rows]."""
    firsts = seqsets.subject_id[seqsets.subject_offsets[:-1]]
    order = np.argsort(firsts, kind="stable")
    place = np.minimum(np.searchsorted(firsts[order], subject_id), len(firsts) - 1)
    subject = order[place]
    bounds = zip(seqsets.subject_offsets[subject], seqsets.subject_offsets[subject + 1], at_us, strict=True)
    sets_begun = np.array(
        [np.searchsorted(seqsets.start_us[first:end], at, side="right") for first, end, at in bounds],
        dtype=np.int64,
    )
    is_known = (firsts[subject] == subject_id) & (sets_begun > 0)
    return np.where(is_known, seqsets.subject_offsets[subject] + sets_begun - 1, -1)


def read_index(index: Any) -> tuple[str, pa.Table]:
    """Return how messages call a table, and the table with its columns' usual names.

    Args:
        index: the path of a Parquet or CSV file, or a frame of Arrow, polars or pandas.

    Raises:
        InputError: the file is missing or unreadable, or this is no table.
    """
    if isinstance(index, str | Path):
        where, table = str(index), _read(Path(index))
    elif hasattr(index, "__arrow_c_stream__"):
        where, table = "the table", pa.table(index)
    else:
        raise InputError(
            f"a {type(index).__name__} is no table; pass a frame of Arrow, polars or pandas, or the path of a file."
        )
    free_names = {old: new for old, new in NAMES.items() if new not in table.column_names}
    return where, table.rename_columns([free_names.get(name, name) for name in table.column_names])


def typed_columns(
    where: str, table: pa.Table, types: Mapping[str, pa.DataType]
) -> dict[str, pa.ChunkedArray]:
    """Return those of the columns that the table has, cast; only `label` may be empty.

    Raises:
        InputError: a column has another type, or empty rows.
    """
    return {
        name: _cast(where, table, name, kind) for name, kind in types.items() if name in table.column_names
    }


def refuse_missing(where: str, columns: Mapping[str, Any], *names: str) -> None:
    """Refuse a table without one of these columns."""
    missing = [name for name in names if name not in columns]
    if missing:
        raise InputError(
            f"{where}: no column {', '.join(missing)}; an index needs "
            f"{', '.join(names[:-1])} and {names[-1]}."
        )


def _read(path: Path) -> pa.Table:
    if not path.exists():
        raise InputError(f"{path}: no such index file.")
    try:
        return pa.csv.read_csv(path) if path.suffix == ".csv" else pq.read_table(path)
    except pa.ArrowInvalid:
        raise InputError(
            f"{path}: not a readable {path.suffix or 'Parquet'} file; give .csv or .parquet."
        ) from None


def _cast(where: str, table: pa.Table, name: str, kind: pa.DataType) -> pa.ChunkedArray:
    column = table[name]
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        raise InputError(
            f"{where}: column {name} has a time zone, which the times of the shards do not have; write local times."
        )
    nulls = column.null_count if name != "label" else 0
    try:
        cast = column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InputError(
            f"{where}: column {name} is {column.type}, which cannot be converted to {kind}."
        ) from None
    if nulls:
        raise InputError(
            f"{where}: column {name} is empty in {nulls:,} of {len(table):,} rows; fill or drop them."
        )
    return cast
