"""The SQL statements of each table, made from its schema.

They use only SELECT, CAST, WHERE and binds, which all databases share: no LIMIT, no quoted names, no `::`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from pipelines.sources.pcornet.tables import DATE, NUMBER, TABLES, TEXT


@dataclass(frozen=True)
class Dialect:
    """The spelling of types and binds in one database; binds are numbered from 1."""

    text: str
    date: str
    number: str
    bind: str  # the prefix of a bind's number

    def type_name(self, kind: pa.DataType) -> str:
        """Return the database's name of a column's type."""
        return {TEXT: self.text, DATE: self.date, NUMBER: self.number}[kind]


def select(table: str, dialect: Dialect, conditions: Sequence[tuple[str, str]] = ()) -> str:
    """Return the statement that reads a table; `conditions` are (column, comparison) pairs, bound in that order."""
    columns = [
        f"CAST({field.name} AS {dialect.type_name(field.type)}) AS {field.name}" for field in TABLES[table]
    ]
    return f"SELECT {', '.join(columns)} FROM {table}{_where(dialect, conditions)}"


def count(table: str, dialect: Dialect, conditions: Sequence[tuple[str, str]] = ()) -> str:
    """Return the statement that counts the rows that `select` reads."""
    return f"SELECT COUNT(*) AS N FROM {table}{_where(dialect, conditions)}"


def select_no_rows(table: str) -> str:
    """Return a statement that yields no rows, but the table's columns."""
    return f"SELECT * FROM {table} WHERE 1 = 0"


def _where(dialect: Dialect, conditions: Sequence[tuple[str, str]]) -> str:
    terms = [
        f"{column} {compare} {dialect.bind}{number}" for number, (column, compare) in enumerate(conditions, 1)
    ]
    return f" WHERE {' AND '.join(terms)}" if terms else ""
