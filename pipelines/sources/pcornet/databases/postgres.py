"""A CDM in PostgreSQL, read by ADBC: Arrow batches from a binary COPY, without row objects."""

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
_MEANINGS = {  # by SQLSTATE or its first two characters
    "28": "the user or password is refused. Check NEST_DB_USER and NEST_DB_PASSWORD.",
    "3D": "there is no such database. Check NEST_DB_DSN.",
    "42501": "this account may not read a table. Grant it SELECT.",
    "42": "a table or column does not exist. Give a CDM 6.1 or 7.0.",
    "22": "a value in a date or number column is not one. Correct it at the source.",
    "53": "the server has no connection, memory or disk left. Run again; extracted tables are kept.",
    "57": "the server ended the connection. Run again; extracted tables are kept.",
    "08": "the connection broke. Run again; extracted tables are kept.",
}
_WORDS = {  # by words of libpq and the server, where an error has no SQLSTATE, as while rows stream
    "invalid input syntax": _MEANINGS["22"],
    "out of range": _MEANINGS["22"],
    "permission denied": _MEANINGS["42501"],
    "authentication failed": _MEANINGS["28"],
    "no password supplied": _MEANINGS["28"],
    'role "': _MEANINGS["28"],
    'database "': _MEANINGS["3D"],
    "SSL": f"no TLS with this server. Correct its certificate{OR_PLAINTEXT}.",
    "onnection refused": "no server answers there. Is it running? Check NEST_DB_DSN.",
    "translate host name": "no such host. Check NEST_DB_DSN.",
    "imeout": "no answer in time. Check NEST_DB_DSN and the firewall.",
    "closed the connection": _MEANINGS["08"],
    "terminat": _MEANINGS["57"],
}


@dataclass(frozen=True)
class Postgres:
    """A PostgreSQL database, reached with credentials from the environment."""

    access: Access
    allow_plaintext: bool = False
    name: str = "PostgreSQL"
    dialect: Dialect = POSTGRES

    @property
    def address(self) -> str:
        """The address and the account, whose schema unquoted names refer to."""
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
    """Connect in autocommit mode: each statement is a transaction unless one is begun.

    Raises:
        InputError: no server answers, or the credentials are refused.
    """
    with clear_errors():
        address = postgres_address(access, allow_plaintext=allow_plaintext)
        database = adbc_driver_postgresql.dbapi.connect(address, autocommit=True)
    try:
        yield database
    finally:
        with contextlib.suppress(adbc_driver_manager.Error):  # a broken connection was reported already
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
    """Turn an error of the driver into an InputError without the server's message, which may quote a value."""
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
