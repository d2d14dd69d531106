"""A CDM in PostgreSQL, read by ADBC: Arrow batches off the wire's binary COPY, no row object in between."""

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import adbc_driver_manager
import adbc_driver_postgresql.dbapi
import pyarrow as pa

from pipelines.sources.pcornet.databases.access import OR_PLAINTEXT, Access, postgres_address
from pipelines.sources.pcornet.databases.statements import Dialect, select_no_rows
from schemas.errors import InputError

POSTGRES = Dialect("text", "date", "double precision", "$")
SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
BATCH_BYTES = 8 << 20
_CHANGES = "INSERT, UPDATE, DELETE, TRUNCATE"
_MEANINGS = {  # SQLSTATE or its first two signs
    "28": "user or password is refused. Look at NEST_DB_USER and NEST_DB_PASSWORD.",
    "3D": "there is no such database. Look at NEST_DB_DSN.",
    "42501": "this account may not read a table. Grant it SELECT.",
    "42": "a table or column is not there. Give a CDM 6.1 or 7.0.",
    "22": "a value is no date or number as its column is read. Mend it there.",
    "53": "the server has no connection, memory or disk left. Run again; what was extracted stays.",
    "57": "the server ended the connection. Run again; what was extracted stays.",
    "08": "the connection broke. Run again; what was extracted stays.",
}
_WORDS = {  # where there is no SQLSTATE, as while rows stream: libpq's and the server's own words
    "invalid input syntax": _MEANINGS["22"],
    "out of range": _MEANINGS["22"],
    "permission denied": _MEANINGS["42501"],
    "authentication failed": _MEANINGS["28"],
    "no password supplied": _MEANINGS["28"],
    'role "': _MEANINGS["28"],
    'database "': _MEANINGS["3D"],
    "SSL": f"no TLS with this server. Mend its certificate{OR_PLAINTEXT}.",
    "onnection refused": "nobody answers there. Is the server up? Look at NEST_DB_DSN.",
    "translate host name": "no such host. Look at NEST_DB_DSN.",
    "imeout": "no answer in time. Look at NEST_DB_DSN and the firewall.",
    "closed the connection": _MEANINGS["08"],
    "terminat": _MEANINGS["57"],
}


@dataclass(frozen=True)
class Postgres:
    """A database, reached with credentials from the environment."""

    access: Access
    allow_plaintext: bool = False
    name: str = "PostgreSQL"
    dialect: Dialect = POSTGRES

    @property
    def address(self) -> str:
        """The account's too: it says which schema unquoted names mean."""
        return f"{self.access.dsn} {self.access.user}"

    @contextmanager
    def snapshot(self) -> Iterator["PostgresReader"]:
        """Connect and begin a snapshot that cannot write."""
        with connection(self.access, allow_plaintext=self.allow_plaintext) as open_connection:
            reader = PostgresReader(open_connection)
            with clear_errors(), open_connection.cursor() as cursor:
                cursor.execute(SNAPSHOT)
            yield reader


@contextmanager
def connection(access: Access, *, allow_plaintext: bool) -> Iterator[adbc_driver_postgresql.dbapi.Connection]:
    """Connect; each statement its own transaction until one begins.

    Raises:
        InputError: nobody answers or the credentials are refused.
    """
    with clear_errors():
        address = postgres_address(access, allow_plaintext=allow_plaintext)
        database = adbc_driver_postgresql.dbapi.connect(address, autocommit=True)
    try:
        yield database
    finally:
        with contextlib.suppress(adbc_driver_manager.Error):  # it is gone already, and that was told
            database.close()


@dataclass(frozen=True)
class PostgresReader:
    """One connection in one snapshot."""

    connection: adbc_driver_postgresql.dbapi.Connection

    def batches(self, statement: str, binds: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        with clear_errors(), self.connection.cursor() as cursor:
            size = adbc_driver_postgresql.StatementOptions.BATCH_SIZE_HINT_BYTES.value
            cursor.adbc_statement.set_options(**{size: str(BATCH_BYTES)})
            cursor.execute(statement, tuple(binds) or None)
            yield from cursor.fetch_record_batch()

    def columns(self, table: str) -> list[str] | None:
        (exists,) = self._values(f"SELECT to_regclass('{table.lower()}') IS NOT NULL")
        if not exists or not self._values(f"SELECT has_table_privilege('{table.lower()}', 'SELECT')")[0]:
            return None
        with clear_errors(), self.connection.cursor() as cursor:
            cursor.execute(select_no_rows(table))
            return [column[0].upper() for column in cursor.description or []]

    def rows_by_lines(self, table: str) -> int | None:
        return None

    def can_write(self, tables: Sequence[str]) -> bool:
        privileges = " OR ".join(f"has_table_privilege('{table.lower()}', '{_CHANGES}')" for table in tables)
        return bool(self._values(f"SELECT {privileges}")[0])

    def _values(self, statement: str) -> list[object]:
        return [value.as_py() for batch in self.batches(statement) for value in batch.column(0)]


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turn what the driver raises into an InputError: the server's words may hold a value or a name."""
    try:
        yield
    except (adbc_driver_manager.Error, pa.ArrowException, OSError) as error:
        raise InputError(f"PostgreSQL: {_meaning(error)}") from None


def _meaning(error: BaseException) -> str:
    state = getattr(error, "sqlstate", None) or ""
    for code in (state, state[:2]):
        if code in _MEANINGS:
            return _MEANINGS[code]
    text = str(error)
    for word, meaning in _WORDS.items():
        if word in text:
            return meaning
    return f"the statement failed (SQLSTATE {state or 'unknown'}). The server's log says why."
