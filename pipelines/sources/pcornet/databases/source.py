"""The interface of a source of a CDM: the few things in which databases and dumps differ."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import pyarrow as pa

from pipelines.sources.pcornet.databases.statements import Dialect


class Reader(Protocol):
    """A snapshot: every statement sees the same rows, whatever is written meanwhile."""

    def batches(self, statement: str, binds: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a statement as they arrive, without keeping them.

        Raises:
            InputError: the connection broke; a table, column or permission is missing; a value cannot be cast.
        """
        ...

    def columns(self, table: str) -> list[str] | None:
        """Return a table's columns in upper case; None if it does not exist or may not be read."""
        ...

    def rows_by_lines(self, table: str) -> int | None:
        """Return the rows of a text table, counted by lines; None for other tables."""
        ...

    def can_write(self, tables: Sequence[str]) -> bool:
        """Return whether the account could change one of the tables, which an extraction never needs."""
        ...


class Source(Protocol):
    """A database or dump that holds a CDM."""

    @property
    def name(self) -> str:
        """The name of the source in messages."""
        ...

    @property
    def address(self) -> str:
        """The database or folder, without secrets."""
        ...

    @property
    def dialect(self) -> Dialect:
        """The spelling of types and binds."""
        ...

    def snapshot(self) -> AbstractContextManager[Reader]:
        """Begin a read-only snapshot.

        Raises:
            InputError: no server answers, or the credentials are refused; messages never quote a password.
        """
        ...
