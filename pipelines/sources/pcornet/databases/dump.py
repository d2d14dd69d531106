"""A CDM as a DuckDB database, or as a folder of Parquet or CSV files that DuckDB reads."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pyarrow as pa

from pipelines.reading.files import find_file, require_unchanged, translate_errors
from pipelines.reading.lines import count_rows
from pipelines.sources.pcornet.databases.statements import Dialect, select_no_rows
from pipelines.sources.pcornet.tables import TABLES
from schemas.errors import InputError
from schemas.io.paths import DuckDBPaths

ROWS_PER_BATCH = 100_000
MEMORY_LIMIT = "1GB"  # of DuckDB; rows stream through
DUCKDB = Dialect("VARCHAR", "DATE", "DOUBLE", "$")


@dataclass(frozen=True)
class Dump:
    """One file a table, named after it in either case: .parquet, .csv or .csv.gz; '' in CSV is null unless quoted."""

    folder: Path
    name: str = "dump"
    dialect: Dialect = DUCKDB

    @property
    def address(self) -> str:
        return str(self.folder.resolve())

    @contextmanager
    def snapshot(self) -> Iterator["DuckDBReader"]:
        """Read the files as they are; one that changes meanwhile is refused at the end.

        Raises:
            InputError: a table is there twice, its quotes are such that rows could vanish in a cell, or a file changed.
        """
        paths = {
            name: find_file(self.folder, name.lower()) or find_file(self.folder, name) for name in TABLES
        }
        with ExitStack() as stack:
            for path in paths.values():
                if path is not None:
                    stack.enter_context(require_unchanged(path))
            lines = {
                name: count_rows(path, with_blank=False)
                for name, path in paths.items()
                if path is not None and path.suffix != ".parquet"
            }
            duckdb_paths = stack.enter_context(DuckDBPaths())
            database = stack.enter_context(connect_duckdb(read_only=True))
            for name, path in paths.items():
                if path is not None:
                    with _clear_errors(name):
                        database.execute(f"CREATE VIEW {name} AS FROM {_scan(path, duckdb_paths)}")
            yield DuckDBReader(database, [name for name, path in paths.items() if path is not None], lines)


@dataclass(frozen=True)
class DuckDBFile:
    """A database in one file, whose tables or views bear the CDM's names."""

    file: Path
    name: str = "DuckDB"
    dialect: Dialect = DUCKDB

    @property
    def address(self) -> str:
        return str(self.file.resolve())

    @contextmanager
    def snapshot(self) -> Iterator["DuckDBReader"]:
        """Open the file for reading; as long as it is, no other process can open it for writing.

        Raises:
            InputError: it is no DuckDB database, may not be read, or somebody writes in it.
        """
        with translate_errors(self.file), self.file.open("rb"):
            pass
        with (
            DuckDBPaths() as paths,
            self._open(paths.database(self.file)) as database,
            _clear_errors(self.file.name),
        ):
            names = database.sql(
                "SELECT upper(table_name) FROM information_schema.tables WHERE table_schema = current_schema()"
            ).fetchall()
            yield DuckDBReader(database, [name for (name,) in names])

    def _open(self, name: str) -> duckdb.DuckDBPyConnection:
        try:
            return connect_duckdb(name, read_only=True)
        except duckdb.Error as error:
            is_locked = "Could not set lock" in str(error)
            raise InputError(
                f"{self.file}: somebody has it open for writing. Close it there and run again."
                if is_locked
                else f"{self.file}: is damaged, no DuckDB database, or a newer DuckDB's. Export its tables as Parquet, "
                "and give that folder."
            ) from None


def _scan(path: Path, paths: DuckDBPaths) -> str:
    if path.suffix == ".parquet":
        return paths.parquet(path)
    # all that can be said is said: DuckDB guesses the rest by the first rows, and takes a `;` in a text for a comma
    options = "delim = ',', quote = '\"', escape = '\"', header = true, all_varchar = true"
    return paths.csv(path, f"{options}, nullstr = '', allow_quoted_nulls = false")


@dataclass(frozen=True)
class DuckDBReader:
    """A database of DuckDB; where a folder is read it holds nothing itself."""

    database: duckdb.DuckDBPyConnection
    tables: Sequence[str]
    lines: Mapping[str, int] = field(default_factory=dict)  # rows of a table of text, by its lines

    def batches(self, statement: str, binds: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        with _clear_errors(statement.rpartition(" FROM ")[2].split()[0]):
            yield from self.database.sql(statement, params=list(binds)).to_arrow_reader(ROWS_PER_BATCH)

    def columns(self, table: str) -> list[str] | None:
        if table not in self.tables:
            return None
        with _clear_errors(table):
            return [
                column[0].upper() for column in self.database.execute(select_no_rows(table)).description or []
            ]

    def rows_by_lines(self, table: str) -> int | None:
        return self.lines.get(table)

    def can_write(self, tables: Sequence[str]) -> bool:
        return False


def connect_duckdb(database: str = ":memory:", *, read_only: bool = False) -> duckdb.DuckDBPyConnection:
    """Connect to a database that keeps within its memory and draws no bar: how far a table is, a line tells.

    It spills no row to a disk where nobody would look for it. What is only read goes through one thread, which gives
    the same batches on every machine, and is hardly slower: Parquet is written by one too.
    """
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": MEMORY_LIMIT,
        "temp_directory": "",
    }
    if read_only:
        config["threads"] = 1
    connection = duckdb.connect(database, read_only=read_only and database != ":memory:", config=config)
    connection.execute("SET enable_progress_bar = false")
    return connection


@contextmanager
def _clear_errors(table: str) -> Iterator[None]:
    """Turn what DuckDB raises, also through Arrow once rows flow, into an InputError without the value it quotes."""
    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise InputError(f"{table}: {_explain(error)}") from None


def _explain(error: Exception) -> str:
    words = str(error)
    if isinstance(error, duckdb.ConversionException) or "Conversion Error" in words:
        return "a date or a number that is none as we read them (YYYY-MM-DD, 1.5). Export it so."
    if isinstance(error, duckdb.OutOfMemoryException) or "Out of Memory" in words:
        return f"takes over {MEMORY_LIMIT} to read, as a view that sorts or joins may. Make a table of it."
    if isinstance(error, duckdb.CatalogException | duckdb.BinderException):
        return "is made of a table or column that is not there. Mend the view, or make a table of it."
    return "the file is damaged, or no comma-separated UTF-8 text, Parquet or DuckDB database. Copy or export it again."
