"""`python -m tests.killed_at N`: the data steps in one process, which kills itself at its N-th change to the data.

A change is a file opened to be written, renamed or removed, or a folder made or removed. Says how many there were if it
was not killed.
"""

import os
import signal
import sys
from pathlib import Path

import dagster as dg

from assets.cohorts import FOLDER
from assets.definitions import build
from assets.resources import Workspace

CHANGES = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree")


def kill_at(change: int, folder: str) -> list[int]:
    """Kill this process at a change below a folder; return the count so far, which goes on."""
    count = [0]

    def watch(event: str, arguments: tuple) -> None:
        if event not in CHANGES or not str(arguments[0]).startswith(folder):
            return
        if event == "open" and not (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR):
            return
        count[0] += 1
        if count[0] == change:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    return count


def main() -> None:
    data = os.environ["NEST_DATA_DIR"]
    assets = [
        asset
        for asset in build(FOLDER).assets
        if isinstance(asset, dg.AssetsDefinition)
        and set(asset.group_names_by_key.values()) <= {"mimic_etl", "mimic_cohorts"}
    ]
    changes = kill_at(int(sys.argv[1]), str(Path(data).resolve()))
    assert dg.materialize(assets, resources={"workspace": Workspace()}).success
    sys.stdout.write(f"changes: {changes[0]}\n")


if __name__ == "__main__":
    main()
