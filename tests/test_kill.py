"""A training killed through Dagster leaves nothing running, goes on, and ends with the very same weights."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from tests.runs import BIN, ROOT, Run, environment, run

COMMAND = ("dagster", "job", "execute", "-j", "mimic_pretrain")


def processes_writing_to(folder: Path) -> list[int]:
    """Return the processes whose command line names a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:  # ended meanwhile
            continue
    return found


def wait_until(condition, *, seconds: float) -> None:
    """Wait for a condition; fail when it does not come."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def test_a_pretraining_killed_through_its_parent_goes_on_to_the_same_weights(full_run: Run, tmp_path: Path):
    shutil.copytree(full_run.data, tmp_path / "data")
    model = tmp_path / "data" / "mimic" / "models" / "mimic_nest"
    shutil.rmtree(model)
    parent = subprocess.Popen(
        [str(BIN / COMMAND[0]), *COMMAND[1:]], cwd=ROOT, env=environment(tmp_path), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_until(lambda: any((model / "state").glob("*")), seconds=120)
    assert processes_writing_to(model), "the training runs in a process of its own"

    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()

    wait_until(lambda: not processes_writing_to(model), seconds=10)
    assert not (model / "model.safetensors").exists(), "killed too late to test anything"
    again = run(*COMMAND, folder=tmp_path)
    assert again.returncode == 0, again.output[-2000:]
    undisturbed = full_run.data / "mimic" / "models" / "mimic_nest"
    assert (model / "model.safetensors").read_bytes() == (undisturbed / "model.safetensors").read_bytes()
    assert not (model / "state").exists() or not any((model / "state").iterdir())
