"""Load a dump into a DuckDB database, for a site without a server."""

from pathlib import Path

import duckdb

from pipelines.engine.progress import StepProgress
from pipelines.sources.pcornet.databases.dump import connect_duckdb
from pipelines.sources.pcornet.tables import TABLES
from schemas.errors import InputError
from schemas.io.atomic import part_of, remove_files, replace_file, writing
from schemas.io.paths import DuckDBPaths


def load_duckdb(folder: Path, file: Path) -> dict[str, int]:
    """Write the Parquet files of `folder` as the tables of a new database `file` (0600); return their rows.

    Every column of the files is loaded, even those that are never read, and rows keep their order.

    Raises:
        InputError: `file` exists, or its folder does not; a table is missing or not Parquet; the disk is full, or the
            folder may not be written. No part of the database remains.
    """
    file = file.expanduser()
    if file.exists():
        raise InputError(f"{file}: exists already. Remove it, or name another file.")
    if not file.parent.is_dir():
        raise InputError(f"{file.parent}: no such folder. Create it, or name a file in another.")
    if missing := [name for name in TABLES if not (folder / f"{name.lower()}.parquet").is_file()]:
        raise InputError(f"{folder}: no Parquet file of {', '.join(missing)}. Give a folder with all tables.")
    rows, part = {}, part_of(file)
    log = part.with_name(f"{part.name}.wal")
    progress = StepProgress(f"load {file.name}", "tables", len(TABLES))
    try:
        with writing(file):
            part.unlink(missing_ok=True)  # else a killed run's file would be opened and extended
            log.unlink(missing_ok=True)
        with replace_file(file), DuckDBPaths() as paths, connect_duckdb(paths.database(part)) as database:
            part.chmod(0o600)
            for name in TABLES:
                parquet_scan = paths.parquet(folder / f"{name.lower()}.parquet")
                result = database.execute(f"CREATE TABLE {name} AS FROM {parquet_scan}")
                rows[name] = sum(count for (count,) in result.fetchall())
                progress.advance(1)
            database.execute("CHECKPOINT")  # closing does this too, but ignores a full disk
    except duckdb.Error as error:  # its message may quote a value
        raise InputError(
            f"{file}: cannot be made from {folder} ({type(error).__name__}). Check that the disk has room for as much "
            "again and may be written, and that the files are complete."
        ) from None
    finally:
        remove_files(log)
    return rows
