"""Extract a CDM to one Parquet file per table: from one snapshot, with counted rows, resumed table by table."""

import hashlib
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.engine.progress import StepProgress
from pipelines.sources.pcornet.databases.manifest import ManifestLine, append_line, read_manifest
from pipelines.sources.pcornet.databases.source import Reader, Source
from pipelines.sources.pcornet.databases.statements import count, select
from pipelines.sources.pcornet.tables import KEYS, TABLES
from schemas.errors import InputError
from schemas.io.atomic import writing
from schemas.io.folders import put_folder_in_place, restore
from schemas.io.hashing import file_sha256
from schemas.io.lock import sole_writer
from schemas.io.outputs import adopt, refuse_foreign_files, replace_outputs
from schemas.io.private import make_private
from schemas.nouns import with_noun

_DAY_1970 = date(1970, 1, 1).toordinal()
# in days since 1970
FIRST_DAY, LAST_DAY = date(1, 1, 1).toordinal() - _DAY_1970, date(9999, 12, 31).toordinal() - _DAY_1970
Refresh = dict[str, date | None]

log = logging.getLogger("nest")


def extract(
    source: Source, folder: Path, *, patients: tuple[str, str] | None = None
) -> dict[str, ManifestLine]:
    """Write `<table in lower case>.parquet` of every table into `folder` (mode 0700) and return the manifest.

    Args:
        source: The database or dump.
        folder: The folder to write to; tables that an earlier run of the same source and refresh wrote are kept.
        patients: PATIDs from the first up to but without the second, in the order of the database; for a trial run.

    Raises:
        InputError: the source cannot be read, lacks a column, was refreshed meanwhile, or gave another number of rows
            than it counted; the folder holds tables of another source.
        NestError: another run is writing there.
    """
    with writing(folder):
        make_private(folder)
        folder.chmod(0o700)
    with sole_writer(folder):
        _refuse_foreign_tables(folder)
        with source.snapshot() as reader:
            refresh, manifest = _extract_tables(source, reader, folder, patients)
        with source.snapshot() as later:
            if _refresh_dates(read_harvest(source, later)) != refresh:
                raise InputError(
                    f"{source.name}: HARVEST has other refresh dates than when the extraction began. Extract again; "
                    f"{folder} holds the earlier state, and two states do not mix."
                )
    rows = sum(line.rows for line in manifest.values())
    log.info("%s: %d tables, %s rows, in %s", source.name, len(manifest), f"{rows:,}", folder)
    return manifest


def extract_newest(
    source: Source, folder: Path, *, accept: Callable[[pa.Table], object]
) -> dict[str, ManifestLine]:
    """Bring `folder` to the source's current state, as `extract` writes it, and return the manifest.

    The state is identified by the row of HARVEST. Tables already extracted in this state are not read again. A new
    state is written to `<folder>.next`, which replaces the folder once its last table is complete; until then the
    earlier tables remain in use. A run that ends early is continued by the next.

    Args:
        source: The database or dump.
        folder: The folder of an earlier run, or a new one.
        accept: A check of HARVEST before any other table is read, which raises to stop the run.

    Raises:
        InputError: as in `extract`; the folder is left as it was.
        NestError: another run is writing there.
    """
    folder = folder.resolve()
    with writing(folder), sole_writer(folder.parent):
        next_folder = folder.with_name(f"{folder.name}.next")
        restore(folder)
        _refuse_foreign_tables(folder)
        with source.snapshot() as reader:
            _require_columns(source, reader)
            harvest, origin = read_harvest(source, reader), _origin(source)
        accept(harvest)
        if _is_current(folder, harvest, origin) and (read_manifest(folder) or not read_manifest(next_folder)):
            _remove(next_folder)
            return extract(source, folder)
        if not _is_current(next_folder, harvest, origin):
            _remove(next_folder)
        difference = _find_difference(read_manifest(folder), _refresh_dates(harvest), origin)
        log.info("%s: %s: reading all", source.name, _reason_to_read(folder, difference))
        manifest = extract(source, next_folder)
        put_folder_in_place(next_folder, folder)
    return manifest


def _refuse_foreign_tables(folder: Path) -> None:
    """Refuse a folder with a file named like a table that no extraction wrote, or that was changed since.

    Only the first table may lack its manifest line, after a run that was killed before writing it.
    """
    if not folder.is_dir():
        return
    manifest = read_manifest(folder)
    adopt(folder, {_path(folder, name).name: line.sha256 for name, line in manifest.items()})
    first, *later = (name.lower() for name in TABLES)
    tables = {
        name: [path for path in folder.iterdir() if path.name.split(".")[0].lower() == name]
        for name in [first, *later]
    }
    later_files = [path for name in later for path in tables[name]]
    if later_files and not manifest:
        raise InputError(
            f"{folder}: holds {with_noun(len(later_files), 'file')} named after a CDM's tables that no extraction "
            "wrote. Give another folder."
        )
    refuse_foreign_files([*tables[first], *later_files])


def _reason_to_read(folder: Path, difference: tuple[str, str] | None) -> str:
    if not read_manifest(folder):
        return f"no table is in {folder} yet"
    return f"the tables in {folder} are of another {difference[0] if difference else 'row of HARVEST'}"


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _is_current(folder: Path, harvest: pa.Table, origin: str) -> bool:
    """Return whether all tables in a folder are of this source and of its current state."""
    manifest, file = read_manifest(folder), _path(folder, "HARVEST")
    if _find_difference(manifest, _refresh_dates(harvest), origin) is not None:
        return False
    try:
        return "HARVEST" not in manifest or bool(pq.read_table(file).equals(harvest))
    except (pa.ArrowException, OSError):  # lost or damaged: `extract` reads it again
        return True


def _extract_tables(
    source: Source, reader: Reader, folder: Path, patients: tuple[str, str] | None
) -> tuple[Refresh, dict[str, ManifestLine]]:
    """Write every table that is not extracted yet, from one snapshot."""
    _require_columns(source, reader)
    if reader.can_write(list(TABLES)):
        log.warning(
            "%s: this account can write. Reading needs only SELECT; use an account without other rights.",
            source.name,
        )
    if patients is not None:
        _refuse_empty_range(source, reader, patients)
    refresh, origin = _refresh_dates(read_harvest(source, reader)), _origin(source)
    manifest = _read_lines(folder, refresh, origin)
    for name in TABLES:
        has_patients = patients is not None and "PATID" in TABLES[name].names
        conditions = [("PATID", ">="), ("PATID", "<")] if has_patients else []
        binds = patients if patients is not None and has_patients else ()
        statement = select(name, source.dialect, conditions)
        digest = hashlib.sha256("\0".join([statement, *binds]).encode()).hexdigest()
        if not _is_extracted(folder, name, manifest.get(name), digest):
            total = _read_number(reader, count(name, source.dialect, conditions), binds)
            whole = _read_number(reader, count(name, source.dialect), ()) if conditions else total
            _refuse_lost_rows(name, whole, reader.rows_by_lines(name))
            origin_fields = {"source_sha256": origin, "sql_sha256": digest, "refresh": refresh}
            manifest[name] = _write(folder, name, reader.batches(statement, binds), total, origin_fields)
    return refresh, manifest


def _refuse_lost_rows(name: str, rows: int, by_lines: int | None) -> None:
    """Refuse a text table with another number of rows than its lines hold."""
    if by_lines is not None and rows != by_lines:
        raise InputError(
            f"{name}: {rows:,} rows were read of the {by_lines:,} that its lines hold: some were swallowed by a cell. "
            "Export it with every quote within a cell doubled and line feeds at the ends of lines."
        )


def _refuse_empty_range(source: Source, reader: Reader, patients: tuple[str, str]) -> None:
    between = count("DEMOGRAPHIC", source.dialect, [("PATID", ">="), ("PATID", "<")])
    if not _read_number(reader, between, patients):
        raise InputError(
            "--patients: no PATID lies between the two (the first included, the second not) in the order of the "
            "database. Give the lower one first."
        )


def read_harvest(source: Source, reader: Reader) -> pa.Table:
    """Return HARVEST, one row in the declared types.

    Raises:
        InputError: HARVEST does not have exactly one row.
    """
    batches = [_conform("HARVEST", batch)[0] for batch in reader.batches(select("HARVEST", source.dialect))]
    table = pa.Table.from_batches(batches, TABLES["HARVEST"])
    if table.num_rows != 1:
        raise InputError(
            f"{source.name}: HARVEST has {table.num_rows} rows; a CDM has one. Correct the table at its source."
        )
    return table


def _refresh_dates(harvest: pa.Table) -> Refresh:
    (row,) = harvest.to_pylist()
    return {name: row[name] for name in harvest.column_names if name.startswith("REFRESH")}


def _require_columns(source: Source, reader: Reader) -> None:
    faults = []
    for name, schema in TABLES.items():
        columns = reader.columns(name)
        if columns is None:
            faults.append(f"no table {name}, or it may not be read")
        elif missing := [column for column in schema.names if column not in columns]:
            faults.append(f"{name} has no column {', '.join(missing)}")
    if faults:
        raise InputError(
            f"{source.name}: {'; '.join(faults)}. Give a CDM 6.1 or 7.0, and SELECT on its tables."
        )


def _origin(source: Source) -> str:
    return hashlib.sha256(source.address.encode()).hexdigest()


def _read_lines(folder: Path, refresh: Refresh, origin: str) -> dict[str, ManifestLine]:
    manifest = read_manifest(folder)
    if (difference := _find_difference(manifest, refresh, origin)) is not None:
        singular, plural = difference
        raise InputError(
            f"{folder}: holds {with_noun(len(manifest), 'table')} of another {singular}. Two {plural} do not mix: give "
            "an empty folder."
        )
    return manifest


def _find_difference(
    manifest: Mapping[str, ManifestLine], refresh: Refresh, origin: str
) -> tuple[str, str] | None:
    """Return what differs from the tables' own, in singular and plural: their source or refresh; None if neither."""
    if any(line.source_sha256 != origin for line in manifest.values()):
        return "database, account or folder", "sources"
    if any(line.refresh != refresh for line in manifest.values()):
        return "refresh", "refreshes"
    return None


def _is_extracted(folder: Path, name: str, line: ManifestLine | None, digest: str) -> bool:
    path = _path(folder, name)
    return (
        line is not None and line.sql_sha256 == digest and path.exists() and file_sha256(path) == line.sha256
    )


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name.lower()}.parquet"


def _read_number(reader: Reader, statement: str, binds: tuple[str, ...]) -> int:
    (batch,) = (batch for batch in reader.batches(statement, binds) if batch.num_rows)
    return int(batch.column(0)[0].as_py())


def _write(
    folder: Path, name: str, batches: Iterator[pa.RecordBatch], total: int, origin_fields: Mapping[str, Any]
) -> ManifestLine:
    """Write one table to a temporary file, move it into place when complete, and then add its manifest line."""
    path, rows, out_of_range = _path(folder, name), 0, 0
    progress = StepProgress(f"extract {name}", "rows", total)
    with replace_outputs([path]) as (part,):
        with _parquet(part, name) as writer:
            for batch in batches:
                typed_batch, num_nulled = _conform(name, batch)
                writer.write_batch(typed_batch)
                rows, out_of_range = rows + batch.num_rows, out_of_range + num_nulled
                progress.advance(batch.num_rows)
        if rows != total:
            raise InputError(
                f"{name}: {rows:,} rows were read of {total:,} that were counted. Is the table being written to? Run "
                "again."
            )
    with writing(path):
        line = ManifestLine(
            table=name, rows=rows, sha256=file_sha256(path), dates_out_of_range=out_of_range, **origin_fields
        )
    append_line(folder, line)
    return line


def _parquet(file: Path, name: str) -> pq.ParquetWriter:
    """Open a Parquet writer, without a dictionary for the key, whose values never repeat, and without statistics."""
    repeating = [column for column in TABLES[name].names if column != KEYS.get(name)]
    return pq.ParquetWriter(
        file,
        TABLES[name],
        compression="lz4",
        store_schema=False,
        use_dictionary=repeating,
        write_statistics=False,
    )


def _conform(name: str, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
    """Return a batch in the declared types, with dates outside the years 1 to 9999 as null, and their number."""
    columns, num_nulled = [], 0
    for field, column in zip(TABLES[name], batch.columns, strict=True):
        try:
            column = column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # Arrow's own message quotes the value
            raise InputError(
                f"{name}.{field.name}: is of type {column.type}, which cannot be cast to {field.type}. Correct it "
                "at the source."
            ) from None
        if pa.types.is_date(field.type):
            days = column.cast(pa.int32())
            is_date = pc.and_(pc.greater_equal(days, FIRST_DAY), pc.less_equal(days, LAST_DAY))
            num_nulled += len(days) - days.null_count - (pc.sum(is_date).as_py() or 0)
            column = pc.if_else(is_date, column, pa.scalar(None, field.type))
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=TABLES[name]), num_nulled
