import errno
import json
import os
import signal
import subprocess
import sys
import time
from unittest import mock

import pytest

from nest_model.__main__ import main
from nest_model.training.stop import die_with_parent
from nest_model.training.telemetry import Telemetry
from tests.support.factories.world import make_world

SLEEPER = """
import time
from nest_model.training.stop import die_with_parent
die_with_parent()
print("up", flush=True)
time.sleep(60)
"""
MIDDLE = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {SLEEPER!r}])
print(child.pid, flush=True)
child.wait()
"""


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_progress_reports_the_rate_and_the_time_left(tmp_path, monkeypatch):
    clock = iter([10.0, 12.0, 12.0])
    monkeypatch.setattr("nest_model.training.telemetry.time.monotonic", lambda: next(clock))
    progress = Telemetry(tmp_path, seconds_between_lines=1).progress(
        "sets", total=100, unit="sets", initial_units=20
    )
    progress.advance(10)

    (line,) = lines(tmp_path)
    assert line == {
        "event": "progress",
        "stage": "sets",
        "step": 30,
        "total": 100,
        "unit": "sets",
        "rate": pytest.approx(5.0, rel=0.2),
        "seconds_left": pytest.approx(14.0, rel=0.2),
    }


def test_telemetry_writes_nan_as_null(tmp_path):
    Telemetry(tmp_path).evaluation(3, {"auroc": float("nan"), "loss": 0.5})

    assert lines(tmp_path) == [{"event": "evaluation", "epoch": 3, "metrics": {"auroc": None, "loss": 0.5}}]


def test_a_user_error_is_a_single_line_and_an_event(tmp_path, capsys):
    world = make_world(tmp_path / "world", subjects=5)
    (world.seqset / "part-00000.card.json").unlink()
    paths = [f"--{name}={getattr(world, name)}" for name in ("seqset", "subjects", "vocab")]
    code = main(["pretrain", *paths, f"--out={tmp_path / 'out'}", "--device=cpu", "--threads=1"])
    last = capsys.readouterr().err.splitlines()[-1]

    assert code == 2
    assert "no card part-00000.card.json" in last
    assert lines(tmp_path / "out")[-1]["event"] == "error"
    assert lines(tmp_path / "out")[-1]["message"] in last


def test_an_impossible_path_is_a_single_line_without_traceback(capsys):
    code = main(["predict", "--model=m", "--seqset=s", "--out=/proc/nowhere/predictions.parquet"])

    assert code == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: /proc/nowhere: No such file or directory; correct the path or free space. "
        "Earlier outputs are unchanged."
    ]


def test_a_system_error_is_a_single_line(tmp_path, capsys, monkeypatch):
    def fault(**_):
        raise OSError(errno.EIO, os.strerror(errno.EIO), "a-shard")

    monkeypatch.setattr("nest_model.commands.parser._lightgbm", fault)
    flags = [f"--{name}=x" for name in ("labels", "seqset", "vocab", "predictions")]

    assert main(["lightgbm", *flags, f"--out={tmp_path}"]) == 2
    assert capsys.readouterr().err.startswith("error: a-shard: Input/output error; ")
    assert lines(tmp_path)[-1]["event"] == "error"


def test_die_with_parent_ends_a_child_whose_parent_is_already_dead(monkeypatch):
    parents, kill_calls = iter([4711, 1]), []
    monkeypatch.setattr("nest_model.training.stop.os.getppid", lambda: next(parents))
    monkeypatch.setattr("nest_model.training.stop.ctypes.CDLL", lambda _: mock.Mock())
    monkeypatch.setattr("nest_model.training.stop.os.kill", lambda *call: kill_calls.append(call))
    die_with_parent()

    assert kill_calls == [(os.getpid(), signal.SIGKILL)]


def test_a_child_process_dies_with_the_parent(tmp_path):
    """A process starts a child that asks to die with its parent, and is then killed."""
    process = subprocess.Popen([sys.executable, "-c", MIDDLE], stdout=subprocess.PIPE, text=True)
    output = {process.stdout.readline().strip() for _ in range(2)}
    child = int((output - {"up"}).pop())
    os.kill(process.pid, signal.SIGKILL)
    process.wait()

    for _ in range(200):
        if not _is_alive(child):
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the child outlived its parent")


def _is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stream:
            return stream.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
