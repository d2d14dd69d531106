"""Kills a run at moments drawn from a seed, and inspects what is left on disk."""

import atexit
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from schemas.io.outputs import MARK
from schemas.layout import LOGS
from tests.support.commands import BIN, ROOT, SMALL, environment

SEED = int(os.environ.get("KILL_SEED", "2026"))
TEMPORARY = (".part", ".new", ".old", ".tmp", ".arrow", ".npy")
DAGSTER_FILES = ("context", "messages")  # Dagster's messages to a training, without rows


@dataclass(frozen=True)
class Kill:
    """Which processes to kill, and when: some seconds after a number of steps have started."""

    target: str  # "all" of its processes, the "run" alone, or "one" of those it started
    after_steps: int
    then_seconds: float

    @classmethod
    def draw(cls, dice: random.Random, steps: int) -> "Kill":
        target = dice.choice(["all", "run", "one"])
        return cls(target, dice.randint(0, steps), dice.choice([dice.uniform(0, 1.5), dice.uniform(0, 8)]))


def kill_while_running(
    command: tuple[str, ...], folder: Path, kill: Kill, dice: random.Random, **settings: str
) -> bool:
    """Start a command, kill it, and wait until no process is left; return whether it was still running when killed."""
    steps_before = count_started_steps(folder)
    with (folder / "output").open("w") as output:
        run = subprocess.Popen(
            [str(BIN / command[0]), *command[1:]],
            cwd=ROOT,
            env=environment(folder, **SMALL | settings, TMPDIR=str(temporary_folder(folder))),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that its processes can be found by their session
        )
    while run.poll() is None and count_started_steps(folder) - steps_before < kill.after_steps:
        time.sleep(0.02)
    time.sleep(kill.then_seconds)
    children = sorted(session(run.pid) - {run.pid})
    running = run.poll() is None and (kill.target != "one" or bool(children))
    if running:
        targets = {"all": [run.pid, *children], "run": [run.pid], "one": [dice.choice(children or [run.pid])]}
        for process in targets[kill.target]:
            kill_process(process)
    sys.stdout.write(f"{kill}: {'killed' if running else 'had ended'}\n")
    run.wait(timeout=1_800)
    wait_until_gone(run.pid)
    return running


def temporary_folder(folder: Path) -> Path:
    """Return a folder for temporary files outside the data folder, deleted when this process ends.

    It is not below `folder`, since it holds sockets, whose paths may have 107 characters at most.
    """
    path = Path(tempfile.gettempdir()) / f"nest-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}"
    path.mkdir(exist_ok=True)
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def leftover_files(folder: Path) -> list[str]:
    """Return the files that were left outside the data folder and may hold rows."""
    files = (path for path in temporary_folder(folder).rglob("*") if path.is_file())
    return sorted(path.name for path in files if path.name not in DAGSTER_FILES)


def steps_of_last_run(storage: Path, event: dg.DagsterEventType) -> set[str]:
    """Return the steps with an event of this type in the newest run of Dagster's history."""
    os.environ["DAGSTER_NEST_STORAGE"] = str(storage)
    with dg.DagsterInstance.from_config(str(ROOT)) as instance:
        newest = instance.get_runs(limit=1)[0].run_id
        return {entry.step_key for entry in instance.all_logs(newest, of_type=event) if entry.step_key}


def count_started_steps(folder: Path) -> int:
    """Return how many steps of all runs have started, by the files in which Dagster keeps their output."""
    return len(list(folder.glob("dagster/*/compute_logs/*.out")))


def session(leader: int) -> set[int]:
    """Return the living processes of a session."""
    processes = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile
            state, _, _, of = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            if state != "Z" and of == str(leader):
                processes.add(int(entry.name))
    return processes


def processes_writing_to(folder: Path) -> list[int]:
    """Return the processes whose command line names a folder."""
    processes = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
                processes.append(int(entry.name))
        except OSError:  # ended meanwhile
            continue
    return processes


def kill_process(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended already
        os.kill(process, signal.SIGKILL)


def wait_until_gone(leader: int, seconds: float = 20) -> None:
    """Wait until all processes of a session have ended; fail at the timeout."""
    deadline = time.monotonic() + seconds
    while survivors := session(leader):
        assert time.monotonic() < deadline, f"{len(survivors)} processes outlived their run"
        time.sleep(0.05)


def contents(data: Path) -> dict[str, str]:
    """Return the hash of every file of a data folder, except logs, which contain times; fail on temporary files."""
    hashes = {}
    for path in data.rglob("*"):
        name = path.relative_to(data).as_posix()
        if path.name == MARK or LOGS in path.parts:  # the mark may also hold earlier hashes of a file
            continue
        assert not path.name.startswith(".") or name == ".gitignore", f"{name} was left behind"
        assert not name.endswith(TEMPORARY), f"{name} was left behind"
        if path.is_file() and path.suffix != ".jsonl" and path.parent.name != "tensorboard":
            hashes[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return hashes


def data_versions(storage: Path) -> dict[str, str]:
    """Return the data version of every asset in Dagster's history."""
    os.environ["DAGSTER_NEST_STORAGE"] = str(storage)
    with dg.DagsterInstance.from_config(str(ROOT)) as instance:
        events = {key: instance.get_latest_materialization_event(key) for key in instance.all_asset_keys()}
    return {
        key.to_user_string(): event.asset_materialization.tags["dagster/data_version"]
        for key, event in events.items()
        if event is not None
    }


def runs_by_status(storage: Path) -> dict[str, int]:
    """Return how many runs Dagster's history has of each status."""
    os.environ["DAGSTER_NEST_STORAGE"] = str(storage)
    with dg.DagsterInstance.from_config(str(ROOT)) as instance:
        return dict(Counter(run.status.value for run in instance.get_runs()))


@dataclass
class SeedRun:
    """One time that a command turned to a seed: whether it trained anything, and whether it came to the end."""

    seed: int
    is_trained: bool = False
    is_finished: bool = False


def seed_runs(model: Path) -> list[SeedRun]:
    """Return every run of every seed, in order, from a model's log, to which each command of several seeds appends."""
    runs: list[SeedRun] = []
    for line in map(json.loads, (model / "metrics.jsonl").read_text().splitlines()):
        if line["event"] == "seed":
            runs.append(SeedRun(line["seed"]))
        elif runs:  # what came before is of commands of a single seed
            runs[-1].is_trained |= line["event"] in ("evaluation", "trial")
            runs[-1].is_finished |= line["event"] == "result"
    return runs


def seeds_trained_again(runs: list[SeedRun]) -> list[int]:
    """Return the seeds that were trained after a run of theirs had finished."""
    finished: set[int] = set()
    repeats = []
    for run in runs:
        if run.is_trained and run.seed in finished:
            repeats.append(run.seed)
        if run.is_finished:
            finished.add(run.seed)
    return repeats
