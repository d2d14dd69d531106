"""A run killed at any moment leaves no process and no partial output; the next run gives the same bytes."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from assets.runtime.executor import AFTER_FAILURES, AFTER_STOP
from schemas.io.lock import sole_writer
from tests.support.commands import BIN, ROOT, SMALL, Run, environment, run
from tests.support.kill.kills import (
    SEED,
    Kill,
    contents,
    data_versions,
    kill_while_running,
    leftover_files,
    processes_writing_to,
    runs_by_status,
    session,
    steps_of_last_run,
    temporary_folder,
    wait_until_gone,
)

COMMAND = ("dagster", "job", "execute", "-j", "mimic_pretrain")
FULL = ("dagster", "job", "execute", "-j", "mimic_full")
ETL = ("dagster", "job", "execute", "-j", "mimic_etl")
EXTRACTION = (
    "dagster", "asset", "materialize",
    "--select", "mimic_raw,mimic_subjects,mimic_encounters,mimic_events",
)  # fmt: skip
ETL_STEPS, FULL_STEPS = 28, 40  # a few fewer than a run has, checks included
CHANGES = 280  # the range of the draw: a run with fewer changes ends, and the next starts again
SWAP_CHANGES = {
    "events": (2, 15),
    "seqset": (2, 5),
}  # changes between the creation of the temporary folder and its renaming


def wait_until(condition, *, seconds: float) -> None:
    """Wait until a condition holds; fail at the timeout."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.05)


@pytest.mark.long
def test_pretraining_killed_with_the_run_resumes_to_the_same_weights(full_run: Run, tmp_path: Path):
    # of more epochs than the full run's
    undisturbed_run, killed_run = tmp_path / "undisturbed", tmp_path / "killed"
    for folder in (undisturbed_run, killed_run):
        shutil.copytree(full_run.data, folder / "data")
    assert run(*COMMAND, folder=undisturbed_run).returncode == 0
    model = killed_run / "data" / "mimic" / "models" / "mimic_nest"
    shutil.rmtree(model)
    parent = subprocess.Popen(
        [str(BIN / COMMAND[0]), *COMMAND[1:]], cwd=ROOT, env=environment(killed_run), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_until(lambda: any((model / "state").rglob("*.safetensors")), seconds=120)
    assert processes_writing_to(model), "the training must run in a process of its own"

    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()

    wait_until(lambda: not processes_writing_to(model), seconds=10)
    assert not (model / "model.safetensors").exists(), "killed too late to test anything"
    assert runs_by_status(killed_run / "dagster") == {"STARTED": 1}
    second_run = run("python", "-m", "assets.resume", folder=killed_run)
    assert second_run.returncode == 0, second_run.output[-2000:]
    assert runs_by_status(killed_run / "dagster") == {"FAILURE": 1, "SUCCESS": 1}
    weights = undisturbed_run / "data" / "mimic" / "models" / "mimic_nest" / "model.safetensors"
    assert (model / "model.safetensors").read_bytes() == weights.read_bytes()
    assert not (model / "state").exists() or not any((model / "state").iterdir())


def etl_outputs(full_run: Run) -> dict[str, str]:
    """Return the hashes of the data steps' outputs after an uninterrupted run."""
    models = ("mimic/models", "mimic/reports", "mimic/cards/nest", "mimic/cards/report")
    cards = (
        "_leak_audit.card.json",
        "_nest.card.json",
        "_lightgbm.card.json",
        "_yardsticks.card.json",
        "_report.card.json",
    )
    return {
        name: value
        for name, value in contents(full_run.data).items()
        if not name.startswith(models) and not name.endswith(cards)
    }


def test_killed_run_is_resumed_with_the_settings_of_the_start(full_run: Run, tmp_path: Path):
    process = subprocess.Popen(
        [str(BIN / EXTRACTION[0]), *EXTRACTION[1:]], cwd=ROOT, start_new_session=True,
        env=environment(tmp_path, **SMALL, TMPDIR=str(temporary_folder(tmp_path))), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_until(lambda: any((tmp_path / "data" / "mimic").glob(".events.*.part")), seconds=120)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_until_gone(process.pid)
    assert not (tmp_path / "data" / "mimic" / "cards" / "events.card.json").exists(), "killed too late"
    finished_steps = steps_of_last_run(tmp_path / "dagster", dg.DagsterEventType.STEP_SUCCESS)
    assert len(finished_steps) > 1, "killed too early to test anything"
    assert leftover_files(tmp_path) == []
    in_a_check = tmp_path / "data" / "mimic" / ".check_killed"
    in_a_check.mkdir()  # as a kill during a check would leave it

    resumed_run = run("python", "-m", "assets.resume", folder=tmp_path)  # the number of patients is not given

    assert resumed_run.returncode == 0, resumed_run.output[-2000:]
    started_steps = steps_of_last_run(tmp_path / "dagster", dg.DagsterEventType.STEP_START)
    steps_before = {"mimic_raw", "mimic_subjects", "mimic_encounters"}
    assert steps_before <= finished_steps
    assert steps_before <= started_steps, "an input that has changed is taken into account"
    for step in steps_before:
        assert f"{step}: unchanged: nothing to do" in resumed_run.log
    assert "mimic_events" in started_steps
    assert contents(resumed_run.data).items() <= contents(full_run.data).items()
    assert (resumed_run.data / "mimic" / "cards" / "events.card.json").exists()


@pytest.mark.long  # every day it is refused in this process: tests/assets/runtime/test_instance.py
def test_second_run_on_a_data_folder_is_refused_in_one_line(tmp_path: Path):
    with sole_writer(tmp_path / "data"):
        second = run(*EXTRACTION, folder=tmp_path)
    assert second.returncode == 1
    message = f"error: {tmp_path / 'data'}: another run is writing there; wait for it, or end it."
    assert second.output.splitlines() == [message]
    assert list((tmp_path / "data").iterdir()) == []
    assert runs_by_status(tmp_path / "dagster") == {}, "the refused run must not be recorded"


@pytest.mark.long
@pytest.mark.parametrize("wait_s", [0.5, 2.0])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_a_run_with_all_steps_and_releases_the_folder(number, wait_s: float, tmp_path: Path):
    """A terminal sends the signal to the whole process group: the run, and the steps if they belonged to it."""
    command = [str(BIN / EXTRACTION[0]), *EXTRACTION[1:]]
    process = subprocess.Popen(
        command, cwd=ROOT, start_new_session=True, env=environment(tmp_path, **SMALL),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    wait_until((tmp_path / "data" / "mimic").exists, seconds=120)
    time.sleep(wait_s)
    assert len(session(process.pid)) > 1, "a step must be a process of its own"
    os.killpg(process.pid, number)
    output, _ = process.communicate(timeout=60)  # it would hang if the steps died before the run ended them

    assert process.returncode not in (0, -signal.SIGKILL), output[-2000:]
    assert "SUCCESS" not in runs_by_status(tmp_path / "dagster")
    assert f"{AFTER_STOP} " in output
    assert AFTER_FAILURES not in output, "a stop is no failure"
    wait_until(lambda: not session(process.pid), seconds=10)
    with sole_writer(tmp_path / "data"):
        pass  # the lock is free, so the same command can continue, as after a kill


@pytest.mark.long
def test_living_run_is_not_resumed(tmp_path: Path):
    alive = subprocess.Popen(
        [str(BIN / EXTRACTION[0]), *EXTRACTION[1:]], cwd=ROOT, start_new_session=True,
        env=environment(tmp_path, **SMALL), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_until((tmp_path / "data" / "mimic").exists, seconds=120)
    resumed_run = run("python", "-m", "assets.resume", folder=tmp_path)

    assert alive.poll() is None, "the run ended too early to test anything"
    os.killpg(alive.pid, signal.SIGKILL)
    alive.wait()
    assert resumed_run.returncode == 2
    assert "another run is writing there; wait for it, or end it." in resumed_run.output


def run_killed_at(
    change: int, folder: Path, below: str = "", **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run the data steps and kill them at the N-th change to paths that begin with `below`."""
    settings_of_run = {**SMALL, "TMPDIR": str(temporary_folder(folder))}
    return subprocess.run(
        [str(BIN / "python"), "-m", "tests.support.kill.killed_at", str(change), below],
        cwd=ROOT, text=True, timeout=600,
        env=environment(folder, **settings_of_run, **settings), capture_output=True,
    )  # fmt: skip


OPEN_FILES = """
import sys
from pathlib import Path
import numpy as np
import polars as pl
import pyarrow as pa
from pipelines.engine.buckets import Buckets, Spill
from schemas.contract import write_table
from tests.support.kill.changes import kill_at
folder = Path(sys.argv[1])
count = kill_at(int(sys.argv[2]), str(folder))
Spill(folder / "spill", Buckets(np.array([1, 5]))).write("LAB", iter([pl.DataFrame({"subject_id": [1, 5]})]))
rows = pa.table({"subject_id": [1]})
write_table(rows, folder / "rows.parquet", rows.schema, made_by="a test")
print(count[0])
"""


def test_kill_at_counts_opened_spill_and_parquet_files(tmp_path: Path):
    command = [str(BIN / "python"), "-c", OPEN_FILES, str(tmp_path)]
    whole = subprocess.run([*command, "-1"], cwd=ROOT, capture_output=True, text=True)
    assert whole.stdout == "7\n", (
        "two folders, two spill files, a table's folder, its temporary file and its renaming"
    )
    for change, remaining in ((3, "spill/LAB.arrow"), (6, ".rows.parquet.part")):
        for path in (tmp_path / "spill", tmp_path / "rows.parquet"):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        process = subprocess.run([*command, str(change)], cwd=ROOT, capture_output=True)
        assert process.returncode == -signal.SIGKILL
        assert (tmp_path / remaining).exists()
        assert not (tmp_path / "rows.parquet").exists()


def kill_at_changes(
    begin: Callable[[str], Path], kills: int, most: int, expected: dict[str, str], **settings: str
) -> None:
    """Kill the data steps repeatedly, each time on the remains of the last kill, and compare the final outputs.

    Args:
        begin: makes a folder of this name, in which a run starts.
        kills: the number of runs that must really be killed.
        most: the approximate number of changes that a run makes.
        expected: the outputs of an uninterrupted run.
        settings: of the run.
    """
    dice, kill_count, folder = random.Random(SEED + kills), 0, begin("0")
    for attempt in range(3 * kills):
        change = dice.randint(1, most)
        sys.stdout.write(f"killed at change {change} of {folder.name}\n")
        if (process := run_killed_at(change, folder, **settings)).returncode == -signal.SIGKILL:
            kill_count += 1
            if kill_count == kills:
                break
            continue
        assert process.returncode == 0, process.stderr[-2000:]  # fewer changes were left
        assert contents(folder / "data") == expected
        folder = begin(str(attempt + 1))
    assert kill_count == kills, "most runs ended before they were killed"
    process = run_killed_at(-1, folder, **settings)
    assert re.search(r"changes: \d+", process.stdout), process.stderr[-2000:]
    assert contents(folder / "data") == expected
    assert leftover_files(folder) == []


@pytest.mark.long  # every day the test of the killed run kills it at the same swap, of the events
@pytest.mark.parametrize("step", ["events", "seqset"])
def test_data_steps_killed_during_a_folder_swap_give_the_same_bytes(full_run: Run, step: str, tmp_path: Path):
    change = random.Random(f"{SEED} {step}").randint(*SWAP_CHANGES[step])
    process = run_killed_at(change, tmp_path, f"mimic/.{step}.")
    assert process.returncode == -signal.SIGKILL, process.stderr[-2000:]
    mimic = tmp_path / "data" / "mimic"
    assert len(list(mimic.glob(f".{step}.*.part"))) == 1, (
        f"change {change} is not where half of it lies aside"
    )
    assert not (mimic / step).exists()

    second_run = run_killed_at(-1, tmp_path)

    assert second_run.returncode == 0, second_run.stderr[-2000:]
    assert contents(tmp_path / "data") == etl_outputs(full_run)
    assert leftover_files(tmp_path) == []


@pytest.mark.long
def test_data_steps_killed_at_any_file_change_give_the_same_bytes(full_run: Run, tmp_path: Path):
    """The kill comes at a change, not at a moment: a partial output could remain between two renames."""

    def begin(name: str) -> Path:
        (tmp_path / name).mkdir()
        return tmp_path / name

    kill_at_changes(begin, 40, CHANGES, etl_outputs(full_run))


@pytest.mark.long
def test_data_steps_killed_during_a_rule_change_give_the_same_bytes(full_run: Run, tmp_path: Path):
    """Every step finds its output of the earlier rule, which must never count as that of the new rule."""

    def begin(name: str) -> Path:
        shutil.copytree(full_run.data, tmp_path / name / "data")
        return tmp_path / name

    whole = begin("whole")
    undisturbed_run = run_killed_at(-1, whole, NEST_PRESET="paper")
    match = re.search(r"changes: (\d+)", undisturbed_run.stdout)
    assert match, undisturbed_run.stderr[-2000:]
    expected = contents(whole / "data")
    assert expected != contents(full_run.data), "the rule changes nothing"
    kill_at_changes(begin, 20, int(match[1]), expected, NEST_PRESET="paper")


@pytest.mark.long
@pytest.mark.parametrize("target", ["all", "one"])
def test_data_steps_killed_at_a_random_moment_give_the_same_bytes(full_run: Run, target: str, tmp_path: Path):
    dice = random.Random(f"{SEED} {target}")
    for attempt in range(4):  # each kill is earlier than the last, which came after the run had ended
        folder = tmp_path / str(attempt)
        folder.mkdir()
        kill = Kill(target, dice.randint(1, ETL_STEPS >> attempt), dice.uniform(0, 1.5))
        if kill_while_running(ETL, folder, kill, dice):
            break
    else:
        pytest.fail("every run ended before it was killed")

    second_run = run(*ETL, folder=folder, **SMALL, TMPDIR=str(temporary_folder(folder)))

    assert second_run.returncode == 0, second_run.output[-2000:]
    assert leftover_files(folder) == []
    assert contents(second_run.data) == etl_outputs(full_run)


@pytest.mark.long
@pytest.mark.parametrize("series", range(4))
def test_full_chain_killed_repeatedly_gives_the_same_bytes(full_run: Run, series: int, tmp_path: Path):
    dice, kill_count = random.Random(f"{SEED} {series}"), 0
    while kill_count < 6:
        kill = Kill.draw(dice, FULL_STEPS)
        kill_count += kill_while_running(FULL, tmp_path, kill, dice)

    settings_of_run = {**SMALL, "TMPDIR": str(temporary_folder(tmp_path))}
    second_run = run(*FULL, folder=tmp_path, timeout_s=1800, **settings_of_run)

    assert second_run.returncode == 0, second_run.output[-2000:]
    assert leftover_files(tmp_path) == []
    assert contents(second_run.data) == contents(full_run.data)
    assert data_versions(second_run.storage) == data_versions(full_run.storage)
