import json
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest
import sqlalchemy
from sqlalchemy.exc import OperationalError

from assets import history
from assets.child import _Tail

NORMAL = 1  # of PRAGMA synchronous


@pytest.fixture
def wal_file(tmp_path: Path) -> Path:
    file = tmp_path / "history.db"
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE events (line TEXT)")
    connection.close()
    return file


def write_a_line(file: Path) -> int:
    """Write as Dagster does, by an engine whose connection is closed at once, and return how it waits for the disk."""
    engine = sqlalchemy.create_engine(f"sqlite:///{file}", poolclass=sqlalchemy.NullPool)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("INSERT INTO events VALUES ('a')"))
        return connection.execute(sqlalchemy.text("PRAGMA synchronous")).scalar_one()


def test_a_line_written_waits_for_no_disk_and_folds_no_log_in(wal_file: Path):
    log = wal_file.with_name(wal_file.name + "-wal")
    history.write_seldom()
    history.write_seldom()
    assert [write_a_line(wal_file) for _ in range(3)] == [NORMAL] * 3
    assert log.stat().st_size > 0
    with sqlite3.connect(wal_file) as other:
        assert other.execute("SELECT count(*) FROM events").fetchone() == (3,)


def test_no_more_files_are_kept_open_than_a_run_writes_to(tmp_path: Path):
    history.write_seldom()
    for at in range(20):
        file = tmp_path / f"{at}.db"
        with sqlite3.connect(file) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("CREATE TABLE events (line TEXT)")
        write_a_line(file)
    assert len(history._kept_open) == history._MOST_KEPT_OPEN


def test_a_history_that_is_locked_costs_its_lines_and_not_the_training(tmp_path: Path):
    def refuse(*_: object) -> None:
        raise OperationalError("INSERT", {}, sqlite3.OperationalError("database is locked"))

    context = SimpleNamespace(
        asset_key=dg.AssetKey("mimic_nest"), log=SimpleNamespace(log=refuse), log_event=refuse
    )
    file = tmp_path / "metrics.jsonl"
    tail = _Tail(context, file)
    with tail.following():
        lines = [
            {"event": "evaluation", "epoch": 0, "metrics": {"loss": 1.0}},
            {"event": "result", "metrics": {"auroc": 0.5}},
        ]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert tail.last["result"]["metrics"] == {"auroc": 0.5}
