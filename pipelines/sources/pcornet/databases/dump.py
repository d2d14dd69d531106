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
    """A folder with one file per table, named after it in upper or lower case: .parquet, .csv or .csv.gz.

    An empty cell of a CSV is null unless it is quoted.
    """

    folder: Path
    name: str = "dump"
    dialect: Dialect = DUCKDB

    @property
    def address(self) -> str:
        return str(self.folder.resolve())

    @contextmanager
    def snapshot(self) -> Iterator["DuckDBReader"]:
        """Read the files as they are; a file that changes meanwhile is refused at the end.

        Raises:
            InputError: a table has two files, has quotes that would swallow rows into one cell, or a file changed.
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
    """A DuckDB database in one file, with tables or views named like the CDM's."""

    file: Path
    name: str = "DuckDB"
    dialect: Dialect = DUCKDB

    @property
    def address(self) -> str:
        return str(self.file.resolve())

    @contextmanager
    def snapshot(self) -> Iterator["DuckDBReader"]:
        """Open the file for reading; meanwhile no other process can open it for writing.

        Raises:
            InputError: the file is not a DuckDB database, may not be read, or is open for writing.
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
                f"{self.file}: another process has it open for writing. Close it there and run again."
                if is_locked
                else f"{self.file}: is damaged, not a DuckDB database, or written by a newer DuckDB. Export its "
                "tables as Parquet, and give that folder."
            ) from None


def _scan(path: Path, paths: DuckDBPaths) -> str:
    if path.suffix == ".parquet":
        return paths.parquet(path)
    # set all options: DuckDB guesses the others from the first rows, and would take a `;` in a text as the delimiter
    options = "delim = ',', quote = '\"', escape = '\"', header = true, all_varchar = true"
    return paths.csv(path, f"{options}, nullstr = '', allow_quoted_nulls = false")


@dataclass(frozen=True)
class DuckDBReader:
    """An open DuckDB database; for a folder, it has only views of the files."""

    database: duckdb.DuckDBPyConnection
    tables: Sequence[str]
    lines: Mapping[str, int] = field(default_factory=dict)  # rows of each text table, counted by lines

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
    """Connect to a database with limited memory and without DuckDB's progress bar: progress is logged.

    No row is spilled to disk, where nobody would look for it. A read-only database uses one thread, which gives the
    same batches on every machine and is hardly slower, since Parquet is written by one thread too.
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
    """Turn an error of DuckDB, or of Arrow while rows stream, into an InputError that quotes no value."""
    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise InputError(f"{table}: {_explain(error)}") from None


def _explain(error: Exception) -> str:
    words = str(error)
    if isinstance(error, duckdb.ConversionException) or "Conversion Error" in words:
        return "a date or a number is not in a format we read (YYYY-MM-DD, 1.5). Export it so."
    if isinstance(error, duckdb.OutOfMemoryException) or "Out of Memory" in words:
        return f"takes over {MEMORY_LIMIT} to read, as a view that sorts or joins may. Store it as a table."
    if isinstance(error, duckdb.CatalogException | duckdb.BinderException):
        return "is a view of a table or column that does not exist. Correct the view, or store it as a table."
    return "the file is damaged, or not comma-separated UTF-8 text, Parquet or a DuckDB database. Export it again."
