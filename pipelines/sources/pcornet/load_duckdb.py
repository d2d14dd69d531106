"""A dump into a DuckDB database, as a site without a server has it."""

from pathlib import Path

import duckdb

from pipelines.shards import writing
from pipelines.sources.pcornet.dump import MEMORY_LIMIT
from pipelines.sources.pcornet.tables import TABLES
from pipelines.workers import Progress
from schemas.errors import InputError


def load_duckdb(folder: Path, file: Path) -> dict[str, int]:
    """Write the Parquet files of `folder` as the tables of a new database `file`; return their rows.

    Every column of the files goes in, those nobody reads too, and rows keep their order. The file takes its place, and
    that of an earlier one, when the last table is in it.

    Raises:
        InputError: a file is missing or no Parquet, the disk is full, or the folder may not be written.
    """
    part, rows = file.with_name(f".{file.name}.part"), {}
    parts = (part, part.with_name(f"{part.name}.wal"))
    progress = Progress(f"load {file.name}", "tables", len(TABLES))
    try:
        with writing(file):
            _remove(parts)
            with duckdb.connect(part, config={"memory_limit": MEMORY_LIMIT}) as database:
                for name in TABLES:
                    table = str(folder / f"{name.lower()}.parquet").replace("'", "''")
                    made = database.execute(f"CREATE TABLE {name} AS SELECT * FROM read_parquet('{table}')")
                    rows[name] = sum(count for (count,) in made.fetchall())
                    progress.advance(1)
            part.replace(file)
    except duckdb.Error as error:  # its own message can quote a value
        raise InputError(
            f"{file}: cannot be made of {folder} ({type(error).__name__}). Give a folder of {len(TABLES)} whole "
            "Parquet files, as the synthetic CDM is, and see that there is room for as much again."
        ) from None
    finally:
        _remove(parts)
    return rows


def _remove(parts: tuple[Path, ...]) -> None:
    for left in parts:
        left.unlink(missing_ok=True)
