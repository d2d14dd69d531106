"""A training killed at a random moment and run again ends with the same bytes as an undisturbed one."""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.factories.world import World, make_world
from tests.support.kill.kills import SEED, contents

STEADY = ("--threads=1", "--epochs=3", "--seconds-between-states=0")


@dataclass(frozen=True)
class Training:
    """A command without its output, and its undisturbed run: the folder, and the seconds from first state to end."""

    arguments: tuple[str, ...]
    reference_run: Path
    seconds: float

    def start(self, out: Path) -> subprocess.Popen:
        return _start(self.arguments, out)

    def kill_at_random(self, out: Path, dice: random.Random) -> bool:
        """Start it and kill it at a random time after its first state; return whether it was still running."""
        process = self.start(out)
        _wait_for_a_state(process, out)
        delay = dice.uniform(0, self.seconds)
        time.sleep(delay)
        running = process.poll() is None
        if running:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        sys.stdout.write(f"{delay:.2f} s after its first state: {'killed' if running else 'had ended'}\n")
        return running


def _start(arguments: tuple[str, ...], out: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "nest_model", *arguments, *STEADY, f"--out={out / 'model'}"]
    command += [f"--predictions={out / 'report' / 'predictions.parquet'}"] * (arguments[0] == "finetune")
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


def _wait_for_a_state(process: subprocess.Popen, out: Path) -> None:
    while process.poll() is None and not any((out / "model" / "state").rglob("0*.safetensors")):
        time.sleep(0.005)


def run_undisturbed(arguments: tuple[str, ...], out: Path) -> Training:
    process = _start(arguments, out)
    _wait_for_a_state(process, out)
    began = time.monotonic()
    assert process.wait(timeout=300) == 0
    return Training(arguments, out, time.monotonic() - began)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), subjects=200)


def pretrain_undisturbed(world: World, out: Path, system: str) -> Training:
    paths = tuple(f"--{name}={getattr(world, name)}" for name in ("seqset", "subjects", "vocab"))
    return run_undisturbed(("pretrain", *paths, "--model=tiny", f"--system={system}"), out)


@pytest.fixture(scope="module")
def pretraining(world, tmp_path_factory) -> Training:
    return pretrain_undisturbed(world, tmp_path_factory.mktemp("pretraining"), "nest")


@pytest.fixture(scope="module")
def finetuning(world, pretraining, tmp_path_factory) -> Training:
    paths = (f"--seqset={world.seqset}", f"--labels={world.labels}")
    paths += (f"--pretrained={pretraining.reference_run / 'model'}",)
    return run_undisturbed(("finetune", *paths), tmp_path_factory.mktemp("finetuning"))


def ends_as_if_left_alone(training: Training, folder: Path, kills: int) -> None:
    dice, num_kills = random.Random(f"{SEED} {kills}"), 0
    for attempt in range(3 * kills):
        out = folder / str(attempt)
        num_kills += training.kill_at_random(out, dice)
        assert training.start(out).wait(timeout=300) == 0
        assert contents(out) == contents(training.reference_run)
        if num_kills == kills:
            return
    pytest.fail(f"of {3 * kills} trainings only {num_kills} were killed before they ended")


@pytest.mark.long  # every day a training that is asked to stop resumes to the same bytes: test_stages.py
@pytest.mark.parametrize("kills", [1, 10])
def test_a_pretraining_killed_at_random_resumes_to_the_same_bytes(pretraining, tmp_path, kills):
    ends_as_if_left_alone(pretraining, tmp_path, kills)


@pytest.mark.long
@pytest.mark.parametrize("system", ["hi_behrt", "gt_behrt", "motor"])
def test_a_pretraining_with_more_to_keep_resumes_to_the_same_bytes(world, tmp_path, system):
    """BYOL's slower copy of the model, GT-BEHRT's second stage, MOTOR's events and pieces of time."""
    pretraining = pretrain_undisturbed(world, tmp_path / "undisturbed", system)
    ends_as_if_left_alone(pretraining, tmp_path, kills=3)


@pytest.mark.long
@pytest.mark.parametrize("kills", [1, 3])
def test_a_finetuning_killed_at_random_resumes_to_the_same_bytes(finetuning, tmp_path, kills):
    ends_as_if_left_alone(finetuning, tmp_path, kills)


@pytest.mark.long
def test_a_pretraining_killed_repeatedly_resumes_to_the_same_bytes(pretraining, tmp_path):
    dice = random.Random(f"{SEED} again")
    num_kills = sum(pretraining.kill_at_random(tmp_path, dice) for _ in range(4))

    assert num_kills
    assert pretraining.start(tmp_path).wait(timeout=300) == 0
    assert contents(tmp_path) == contents(pretraining.reference_run)
