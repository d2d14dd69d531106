"""A CDM, wherever it lies, as one Parquet file a table: one snapshot, counted, resumed table by table."""

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

FIRST_DAY, LAST_DAY = (
    date(1, 1, 1).toordinal() - 719163,
    date(9999, 12, 31).toordinal() - 719163,
)  # since 1970
Refresh = dict[str, date | None]

log = logging.getLogger("nest")


def extract(
    source: Source, folder: Path, *, patients: tuple[str, str] | None = None
) -> dict[str, ManifestLine]:
    """Write `<table, lower case>.parquet` of every table into `folder` (0700) and return the manifest.

    Args:
        source: a database or a dump.
        folder: what an earlier run of the same source and refresh wrote there is kept, the rest is written.
        patients: from this PATID on and below that one, as the database orders them; for a trial run.

    Raises:
        InputError: the source cannot be read, lacks a column, was refreshed since, or gave other rows than it counted;
            the folder holds another's.
        NestError: another run writes there.
    """
    with writing(folder):
        make_private(folder)
        folder.chmod(0o700)
    with sole_writer(folder):
        _refuse_foreign_tables(folder)
        with source.snapshot() as reader:
            refresh, manifest = _extract_tables(source, reader, folder, patients)
        with source.snapshot() as later:
            if _refresh_of(read_harvest(source, later)) != refresh:
                raise InputError(
                    f"{source.name}: HARVEST has other refresh dates than when the extraction began. Extract again; "
                    f"{folder} holds the state before, which a newer one is not mixed with."
                )
    rows = sum(line.rows for line in manifest.values())
    log.info("%s: %d tables, %s rows, in %s", source.name, len(manifest), f"{rows:,}", folder)
    return manifest


def extract_newest(
    source: Source, folder: Path, *, accept: Callable[[pa.Table], object]
) -> dict[str, ManifestLine]:
    """Bring `folder` to the source's present state, as `extract` writes it, and return the manifest.

    The state is known by HARVEST's row. What stands of it is not read again; another one is written aside, in
    `<folder>.next`, and takes the folder's place when its last table is there: what was extracted before is read
    until then. A run that ends early goes on where it stopped.

    Args:
        source: a database or a dump.
        folder: an earlier run's, or none.
        accept: looks at HARVEST before any other table is read, and raises what it has against it.

    Raises:
        InputError: as `extract`; what stood in the folder still stands there.
        NestError: another run writes there.
    """
    folder = folder.resolve()
    with writing(folder), sole_writer(folder.parent):
        aside = folder.with_name(f"{folder.name}.next")
        restore(folder)
        _refuse_foreign_tables(folder)
        with source.snapshot() as reader:
            _require_columns(source, reader)
            harvest, origin = read_harvest(source, reader), _origin(source)
        accept(harvest)
        if _is_current(folder, harvest, origin) and (read_manifest(folder) or not read_manifest(aside)):
            _remove(aside)
            return extract(source, folder)
        if not _is_current(aside, harvest, origin):
            _remove(aside)
        difference = _find_difference(read_manifest(folder), _refresh_of(harvest), origin)
        log.info("%s: %s: reading all", source.name, _reason_to_read(folder, difference))
        manifest = extract(source, aside)
        put_folder_in_place(aside, folder)
    return manifest


def _refuse_foreign_tables(folder: Path) -> None:
    """Raise InputError where a file has a table's name and no extraction wrote it, or it was changed since.

    The first table alone may have come of a run that was killed before its line.
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
            f"{folder}: holds {len(later_files)} files named after a CDM's tables that no extraction wrote. Give another "
            "folder."
        )
    refuse_foreign_files([*tables[first], *later_files])


def _reason_to_read(folder: Path, difference: tuple[str, str] | None) -> str:
    if not read_manifest(folder):
        return f"nothing of it stands in {folder}"
    return f"the tables in {folder} are of another {difference[0] if difference else 'row of HARVEST'}"


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _is_current(folder: Path, harvest: pa.Table, origin: str) -> bool:
    """Return whether all that stands in a folder is of this source and of its present state."""
    manifest, file = read_manifest(folder), _path(folder, "HARVEST")
    if _find_difference(manifest, _refresh_of(harvest), origin) is not None:
        return False
    try:
        return "HARVEST" not in manifest or bool(pq.read_table(file).equals(harvest))
    except (pa.ArrowException, OSError):  # lost or damaged: `extract` reads it again
        return True


def _extract_tables(
    source: Source, reader: Reader, folder: Path, patients: tuple[str, str] | None
) -> tuple[Refresh, dict[str, ManifestLine]]:
    """Write, out of one snapshot, every table that does not stand yet."""
    _require_columns(source, reader)
    if reader.can_write(list(TABLES)):
        log.warning(
            "%s: this account can write. Reading needs SELECT alone; use one that has no more.", source.name
        )
    if patients is not None:
        _refuse_empty_range(source, reader, patients)
    refresh, origin = _refresh_of(read_harvest(source, reader)), _origin(source)
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
    """Raise InputError where a table of text has other rows than its lines say."""
    if by_lines is not None and rows != by_lines:
        raise InputError(
            f"{name}: {rows:,} rows were read of the {by_lines:,} that its lines hold: some vanish within a cell. "
            "Export it with every quote within a cell doubled and line feeds at the ends of lines."
        )


def _refuse_empty_range(source: Source, reader: Reader, patients: tuple[str, str]) -> None:
    between = count("DEMOGRAPHIC", source.dialect, [("PATID", ">="), ("PATID", "<")])
    if not _read_number(reader, between, patients):
        raise InputError(
            "--patients: no PATID lies from the first on and below the second, in the database's own order. Give the "
            "lower one first."
        )


def read_harvest(source: Source, reader: Reader) -> pa.Table:
    """Return HARVEST, one row in the declared types.

    Raises:
        InputError: it has not exactly one row.
    """
    batches = [_conform("HARVEST", batch)[0] for batch in reader.batches(select("HARVEST", source.dialect))]
    table = pa.Table.from_batches(batches, TABLES["HARVEST"])
    if table.num_rows != 1:
        raise InputError(f"{source.name}: HARVEST has {table.num_rows} rows; a CDM has one. Mend it there.")
    return table


def _refresh_of(harvest: pa.Table) -> Refresh:
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
            f"{folder}: holds {len(manifest)} tables of another {singular}. Two {plural} do not mix: give an empty folder."
        )
    return manifest


def _find_difference(
    manifest: Mapping[str, ManifestLine], refresh: Refresh, origin: str
) -> tuple[str, str] | None:
    """Return what the tables are of another of, one and several; None where they are of this."""
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
    """Write one table aside, in place when it is whole, and its line after that."""
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
                f"{name}: {rows:,} rows came of {total:,} that were counted. Is it being written? Run again."
            )
    with writing(path):
        line = ManifestLine(
            table=name, rows=rows, sha256=file_sha256(path), dates_out_of_range=out_of_range, **origin_fields
        )
    append_line(folder, line)
    return line


def _parquet(file: Path, name: str) -> pq.ParquetWriter:
    """Open a file for a table: no dictionary of a key, whose values never repeat, and no statistics nobody skips by."""
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
    """Return a batch in the declared types, and how many of its dates no calendar has: those are null."""
    columns, num_nulled = [], 0
    for field, column in zip(TABLES[name], batch.columns, strict=True):
        try:
            column = column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # Arrow's own message quotes the value
            raise InputError(
                f"{name}.{field.name}: came as {column.type}, which will not cast to {field.type}. Mend it there."
            ) from None
        if pa.types.is_date(field.type):
            days = column.cast(pa.int32())
            is_date = pc.and_(pc.greater_equal(days, FIRST_DAY), pc.less_equal(days, LAST_DAY))
            num_nulled += len(days) - days.null_count - (pc.sum(is_date).as_py() or 0)
            column = pc.if_else(is_date, column, pa.scalar(None, field.type))
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=TABLES[name]), num_nulled
