"""Dagster's history in SQLite reaches the disk now and then, not at every line of a log.

Dagster opens a connection for each event it writes and closes it again. Each time SQLite waits for the disk, several
times over, as the last connection to a file folds its write-ahead log in. On a slow or shared disk a run then waits
more than it works, and a writer is refused when its turn does not come in half a minute. So a process keeps one
connection to each file of the history open, and none waits for the disk but to fold the log in. A killed process loses
nothing by that; a power failure may lose the last lines, and leaves the file whole
(https://sqlite.org/pragma.html#pragma_synchronous). The page that follows a run watches its file, not the log beside
it, so the file is touched after every line.
"""

import contextlib
import os
import sqlite3
import threading
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.pool import ConnectionPoolEntry, Pool

_SECONDS_TO_WAIT = 60  # for another writer
_MOST_KEPT_OPEN = 8  # a run writes to four
_FILE = "nest history file"  # of what is known of a connection
_kept_open: dict[tuple[int, int], sqlite3.Connection] = {}  # by the file's device and inode
_keeping = threading.Lock()


def write_seldom() -> None:
    """Let every connection to Dagster's SQLite files that this process opens from now on wait for the disk seldom."""
    if not event.contains(Engine, "connect", _settle):
        event.listen(Engine, "connect", _settle)
        event.listen(Pool, "checkin", _touch)


def write_as_usual() -> None:
    """Undo `write_seldom`."""
    if event.contains(Engine, "connect", _settle):
        event.remove(Engine, "connect", _settle)
        event.remove(Pool, "checkin", _touch)
    with _keeping:
        while _kept_open:
            _kept_open.popitem()[1].close()


def _settle(connection: Any, entry: ConnectionPoolEntry) -> None:
    if not isinstance(connection, sqlite3.Connection):
        return
    connection.execute(f"PRAGMA busy_timeout = {1000 * _SECONDS_TO_WAIT}")
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        return  # nor is it promised that such a file stays whole
    connection.execute("PRAGMA synchronous = NORMAL")
    entry.info[_FILE] = connection.execute("PRAGMA database_list").fetchone()[2]
    with contextlib.suppress(OSError), _keeping:
        _keep_open(entry.info[_FILE])


def _keep_open(file: str) -> None:
    found = os.stat(file)
    key = found.st_dev, found.st_ino
    if key in _kept_open:
        return
    if len(_kept_open) >= _MOST_KEPT_OPEN:
        _kept_open.pop(next(iter(_kept_open))).close()
    kept = _kept_open[key] = sqlite3.connect(file, check_same_thread=False)
    kept.execute("SELECT count(*) FROM sqlite_master").fetchone()  # only now is the file open


def _touch(connection: Any, entry: ConnectionPoolEntry) -> None:
    file = entry.info.get(_FILE)
    if file and connection is not None and connection.total_changes:
        with contextlib.suppress(OSError):
            os.utime(file)
