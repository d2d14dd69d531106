"""A CDM in Oracle, read by python-oracledb in thin mode, as data frames and without an installed client."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import oracledb
import pyarrow as pa

from pipelines.sources.pcornet.databases.access import Access, oracle_address
from pipelines.sources.pcornet.databases.statements import Dialect, select_no_rows
from schemas.errors import InputError

ORACLE = Dialect("VARCHAR2(4000)", "DATE", "BINARY_DOUBLE", ":")
SNAPSHOT = "SET TRANSACTION READ ONLY"
ROWS_PER_BATCH = 50_000  # sets the array and the prefetch too
_NO_TABLE = "ORA-00942"
_CHANGES = ("INSERT", "UPDATE", "DELETE")
_MEANINGS = {
    "ORA-01017": "the user or password is refused. Check NEST_DB_USER and NEST_DB_PASSWORD.",
    "ORA-28000": "the account is locked. Have it unlocked.",
    _NO_TABLE: "a table does not exist or may not be read. Give a CDM 6.1 or 7.0, and SELECT on its tables.",
    "ORA-00904": "a column does not exist. Give a CDM 6.1 or 7.0.",
    "ORA-01722": "a value in a number column is not a number. Correct it at the source.",
    "ORA-01555": "the snapshot is too old: UNDO is too small for so long a read. Ask for more, or read a quiet copy.",
    "DPY-6005": "no server answers there. Is it running? Check NEST_DB_DSN.",
    "DPY-6001": "the server has no such service. Check NEST_DB_DSN.",
    "DPY-4011": "the connection broke. Run again; extracted tables are kept.",
}


@dataclass(frozen=True)
class Oracle:
    """An Oracle database, reached with credentials from the environment; Oracle stores '' as null."""

    access: Access
    allow_plaintext: bool = False
    name: str = "Oracle"
    dialect: Dialect = ORACLE

    @property
    def address(self) -> str:
        """The address and the account, whose schema unquoted names refer to."""
        return f"{self.access.dsn} {self.access.user}"

    @contextmanager
    def snapshot(self) -> Iterator["OracleReader"]:
        """Connect and begin a read-only transaction, which is a snapshot."""
        address = oracle_address(self.access, allow_plaintext=self.allow_plaintext)
        with _clear_errors():
            connection = oracledb.connect(user=self.access.user, password=self.access.password, dsn=address)
        try:
            with _clear_errors(), connection.cursor() as cursor:
                cursor.execute(SNAPSHOT)
            yield OracleReader(connection)
        finally:
            connection.close()


@dataclass(frozen=True)
class OracleReader:
    """One connection in one read-only transaction."""

    connection: Any  # oracledb.Connection

    def batches(self, statement: str, binds: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        with _clear_errors():
            for frame in self.connection.fetch_df_batches(
                statement, list(binds) or None, size=ROWS_PER_BATCH
            ):
                if frame.num_columns() and frame.num_rows():  # an empty frame cannot be converted to Arrow
                    yield from pa.table(frame).to_batches()

    def columns(self, table: str) -> list[str] | None:
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(select_no_rows(table))
                return [column[0].upper() for column in cursor.description or []]
        except oracledb.DatabaseError as error:
            if _code(error) == _NO_TABLE:
                return None
            with _clear_errors():
                raise

    def rows_by_lines(self, table: str) -> int | None:
        return None

    def can_write(self, tables: Sequence[str]) -> bool:
        """Return whether the account may change any table, or owns or was granted changes of one of these."""
        names, changes = (", ".join(f"'{word}'" for word in words) for words in (tables, _CHANGES))
        anywhere = ", ".join(f"'{word} ANY TABLE'" for word in _CHANGES)
        statement = (
            "SELECT (SELECT COUNT(*) FROM SESSION_PRIVS WHERE PRIVILEGE IN "
            f"({anywhere})) + "
            f"(SELECT COUNT(*) FROM USER_TAB_PRIVS WHERE TABLE_NAME IN ({names}) AND PRIVILEGE IN ({changes})) + "
            f"(SELECT COUNT(*) FROM USER_TABLES WHERE TABLE_NAME IN ({names})) AS N FROM DUAL"
        )
        return any(value.as_py() for batch in self.batches(statement) for value in batch.column(0))


@contextmanager
def _clear_errors() -> Iterator[None]:
    """Turn an error of the driver into an InputError without the server's message, which may quote a value."""
    try:
        yield
    except oracledb.Error as error:
        code = _code(error)
        meaning = _MEANINGS.get(code, f"the statement failed ({code}). The server's log says why.")
        raise InputError(f"Oracle: {meaning}") from None


def _code(error: oracledb.Error) -> str:
    return str(getattr(error.args[0], "full_code", "unknown")) if error.args else "unknown"
