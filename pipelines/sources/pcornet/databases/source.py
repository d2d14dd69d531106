"""What a place that holds a CDM must do, whatever it is: the few things in which databases and dumps differ."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import pyarrow as pa

from pipelines.sources.pcornet.databases.statements import Dialect


class Reader(Protocol):
    """One snapshot: every statement sees the same rows, whatever is written meanwhile."""

    def batches(self, statement: str, binds: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a statement as they come; none of them is kept.

        Raises:
            InputError: the connection broke, a table, column or permission is missing, a value will not cast.
        """
        ...

    def columns(self, table: str) -> list[str] | None:
        """Return a table's columns in upper case, None where there is no such table or it may not be read."""
        ...

    def rows_by_lines(self, table: str) -> int | None:
        """Return how many rows a table of text has by its lines, None where it is no text."""
        ...

    def can_write(self, tables: Sequence[str]) -> bool:
        """Say whether the account could change one of the tables, which an extraction never needs."""
        ...


class Source(Protocol):
    """Where a CDM lies."""

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    @property
    def address(self) -> str:
        """Which database or folder it is, without a secret."""
        ...

    @property
    def dialect(self) -> Dialect:
        """How it spells types and binds."""
        ...

    def snapshot(self) -> AbstractContextManager[Reader]:
        """Begin a read-only snapshot.

        Raises:
            InputError: nobody answers, or the credentials are refused; a password is never told.
        """
        ...
