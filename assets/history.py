"""Dagster's history in SQLite reaches the disk now and then, not at every line of a log.

Dagster opens a connection for each event it writes and closes it again. Each time SQLite waits for the disk, several
times over, as the last connection to a file folds its write-ahead log in. On a slow or shared disk a run then waits
more than it works, and a writer is refused when its turn does not come in half a minute. So a process keeps one
connection to each file of the history open, and none waits for the disk but to fold the log in. A killed process loses
nothing by that; a power failure may lose the last lines, and leaves the file whole
(https://sqlite.org/pragma.html#pragma_synchronous).
"""

import os
import sqlite3
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

_SECONDS_TO_WAIT = 300  # for another writer
_MOST_KEPT_OPEN = 8  # a run writes to four
_kept_open: dict[tuple[int, int], sqlite3.Connection] = {}  # by the file's device and inode


def write_seldom() -> None:
    """Let every connection to an SQLite file that this process opens from now on wait for the disk seldom."""
    if not event.contains(Engine, "connect", _settle):
        event.listen(Engine, "connect", _settle)


def _settle(connection: Any, _: object) -> None:
    if not isinstance(connection, sqlite3.Connection):
        return
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA busy_timeout = {1000 * _SECONDS_TO_WAIT}")
    if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
        _keep_open(connection.execute("PRAGMA database_list").fetchone()[2])


def _keep_open(file: str) -> None:
    found = os.stat(file)
    key = found.st_dev, found.st_ino
    if key in _kept_open:
        return
    if len(_kept_open) >= _MOST_KEPT_OPEN:
        _kept_open.pop(next(iter(_kept_open))).close()
    kept = _kept_open[key] = sqlite3.connect(file, check_same_thread=False)
    kept.execute("SELECT count(*) FROM sqlite_master").fetchone()  # only now is the file open
