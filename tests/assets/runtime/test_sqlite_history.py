import json
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest
import sqlalchemy
from sqlalchemy.exc import OperationalError

from assets.runtime import sqlite_history
from assets.runtime.child_process import _MetricsTail

FULL, NORMAL = 2, 1  # of PRAGMA synchronous
WRITES_A_LINE_A_SECOND = """
import sys, time
import dagster as dg
from assets.runtime.sqlite_history import relax_sqlite_sync
relax_sqlite_sync()
with dg.DagsterInstance.local_temp(sys.argv[1]) as instance:
    for at in range(3):
        instance.report_engine_event(f"line {at}", job_name="job", run_id=sys.argv[2])
        time.sleep(1)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def as_usual_afterwards():
    sqlite_history.relax_sqlite_sync()
    sqlite_history.relax_sqlite_sync()
    yield
    sqlite_history.restore_sqlite_sync()


@pytest.fixture
def wal_file(tmp_path: Path) -> Path:
    file = tmp_path / "history.db"
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE events (line TEXT)")
    connection.close()
    return file


def write_a_line(file: Path) -> int:
    """Write a row as Dagster does, with a connection closed at once, and return its `synchronous` setting."""
    engine = sqlalchemy.create_engine(f"sqlite:///{file}", poolclass=sqlalchemy.NullPool)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("INSERT INTO events VALUES ('a')"))
        return connection.execute(sqlalchemy.text("PRAGMA synchronous")).scalar_one()


def test_write_does_not_sync_or_checkpoint(wal_file: Path):
    log = wal_file.with_name(wal_file.name + "-wal")
    assert [write_a_line(wal_file) for _ in range(3)] == [NORMAL] * 3
    assert log.stat().st_size > 0
    with sqlite3.connect(wal_file) as second_connection:
        assert second_connection.execute("SELECT count(*) FROM events").fetchone() == (3,)


def test_file_without_a_write_ahead_log_is_unchanged(tmp_path: Path):
    file = tmp_path / "history.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE events (line TEXT)")
    assert write_a_line(file) == FULL
    assert not sqlite_history._open_connections


def test_watcher_of_a_run_gets_each_line_while_the_run_is_going_on(tmp_path: Path):
    run_id, messages = "0" * 8, []
    sqlite_history.restore_sqlite_sync()
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        instance.report_engine_event("begun", job_name="job", run_id=run_id)
        instance.watch_event_logs(run_id, None, lambda entry, _: messages.append(entry.dagster_event.message))
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITES_A_LINE_A_SECOND, str(tmp_path), run_id], stdin=subprocess.PIPE
        )
        try:
            deadline = time.monotonic() + 60
            while "line 2" not in messages and time.monotonic() < deadline:
                time.sleep(0.1)
            assert writer.poll() is None, "the writer ended, which checkpoints its log"
            assert [line for line in messages if line.startswith("line")] == ["line 0", "line 1", "line 2"]
        finally:
            instance.end_watch_event_logs(run_id, None)
            writer.kill()
            writer.wait()


def test_number_of_open_history_files_is_limited(tmp_path: Path):
    for at in range(20):
        file = tmp_path / f"{at}.db"
        with sqlite3.connect(file) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("CREATE TABLE events (line TEXT)")
        write_a_line(file)
    assert len(sqlite_history._open_connections) == sqlite_history._MAX_OPEN_CONNECTIONS


def test_locked_history_loses_lines_but_not_the_training(tmp_path: Path):
    attempts = []

    def refuse(*_: object) -> None:
        attempts.append(1)
        raise OperationalError("INSERT", {}, sqlite3.OperationalError("database is locked"))

    context = SimpleNamespace(
        asset_key=dg.AssetKey("mimic_nest"), log=SimpleNamespace(log=refuse), log_event=refuse
    )
    file = tmp_path / "metrics.jsonl"
    tail = _MetricsTail(context, file)
    with tail.follow():
        lines = [
            {"event": "evaluation", "epoch": 0, "metrics": {"loss": 1.0}},
            {"event": "result", "metrics": {"auroc": 0.5}},
        ]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert tail.last["result"]["metrics"] == {"auroc": 0.5}
    assert len(attempts) == 1, "only the first line may wait for the lock"
