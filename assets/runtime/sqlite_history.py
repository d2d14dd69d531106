"""Makes Dagster's SQLite history sync to disk at checkpoints only, not at every log line.

Dagster opens a connection for each event it writes and closes it again. Each time, SQLite waits for several syncs, as
the last connection to a file to close checkpoints its write-ahead log. On a slow or shared disk a run then waits more
than it works, and a writer fails that gets no lock within half a minute. So a process keeps one connection to each
history file open, and connections sync at a checkpoint only. A killed process loses nothing by that; a power failure
may lose the last lines, and leaves the file intact (https://sqlite.org/pragma.html#pragma_synchronous). The UI's page
of a run watches the file, not the write-ahead log beside it, so the file is touched after every line.
"""

import contextlib
import os
import sqlite3
import threading
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.pool import ConnectionPoolEntry, Pool

_BUSY_TIMEOUT_SECONDS = 60  # for another writer
_MAX_OPEN_CONNECTIONS = 8  # a run writes to four
_FILE_KEY = "nest history file"  # in a connection's `info`
_open_connections: dict[tuple[int, int], sqlite3.Connection] = {}  # by the file's device and inode
_connections_lock = threading.Lock()


def relax_sqlite_sync() -> None:
    """Make the SQLite connections that SQLAlchemy opens from now on in this process sync at checkpoints only."""
    if not event.contains(Engine, "connect", _configure_connection):
        event.listen(Engine, "connect", _configure_connection)
        event.listen(Pool, "checkin", _touch)


def restore_sqlite_sync() -> None:
    """Undo `relax_sqlite_sync`."""
    if event.contains(Engine, "connect", _configure_connection):
        event.remove(Engine, "connect", _configure_connection)
        event.remove(Pool, "checkin", _touch)
    with _connections_lock:
        while _open_connections:
            _open_connections.popitem()[1].close()


def _configure_connection(connection: Any, entry: ConnectionPoolEntry) -> None:
    if not isinstance(connection, sqlite3.Connection):
        return
    connection.execute(f"PRAGMA busy_timeout = {1000 * _BUSY_TIMEOUT_SECONDS}")
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        return  # without a write-ahead log, relaxed syncing could damage the file
    connection.execute("PRAGMA synchronous = NORMAL")
    entry.info[_FILE_KEY] = connection.execute("PRAGMA database_list").fetchone()[2]
    with contextlib.suppress(OSError), _connections_lock:
        _keep_open(entry.info[_FILE_KEY])


def _keep_open(file: str) -> None:
    status = os.stat(file)
    key = status.st_dev, status.st_ino
    if key in _open_connections:
        return
    if len(_open_connections) >= _MAX_OPEN_CONNECTIONS:
        _open_connections.pop(next(iter(_open_connections))).close()
    connection = _open_connections[key] = sqlite3.connect(file, check_same_thread=False)
    connection.execute(
        "SELECT count(*) FROM sqlite_master"
    ).fetchone()  # SQLite opens the file at the first query


def _touch(connection: Any, entry: ConnectionPoolEntry) -> None:
    file = entry.info.get(_FILE_KEY)
    if file and connection is not None and connection.total_changes:
        with contextlib.suppress(OSError):
            os.utime(file)
