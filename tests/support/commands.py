"""Runs commands as users do, each in a process of its own, on separate folders."""

import os
import re
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from assets.cohort_files import COHORT_FILES

ROOT = Path(__file__).parents[2]
BIN = Path(sys.prefix) / "bin"
DEMO = ROOT.parent / "shared" / "data" / "mimic-iv-demo-2.2"
CROSSWALKS = ROOT.parent / "shared" / "data" / "vocab"
# of the whole run and of all that is compared with it: as few patients as leave every cohort something to learn, and no
# longer trainings than show that they go from one epoch to the next; how well they learn is shown elsewhere
SMALL = {
    "NEST_SYNTHETIC_PATIENTS": "150",
    "NEST_SYNTHETIC_TOKENS_PER_SET": "40",
    "NEST_PRETRAINING": "epochs=2",
    "NEST_FINETUNING": "epochs=2",
}


@dataclass(frozen=True)
class Run:
    """A finished command: its exit status, its output, the folders it wrote to, and the checkout whose code it ran."""

    returncode: int
    output: str
    data: Path
    storage: Path
    checkout: Path = ROOT

    @property
    def cohort_folder(self) -> Path:
        """Return the folder of the cohort files that it read."""
        return self.checkout / COHORT_FILES.relative_to(ROOT)

    @property
    def mimic_cohorts(self) -> list[str]:
        """Return the names of MIMIC-IV's cohorts among them."""
        return sorted(file.stem for file in self.cohort_folder.glob("mimic_*.yaml"))

    @property
    def log(self) -> str:
        """Return all messages of the run, from the file that its output names."""
        (file,) = re.findall(r"every message: (.+)", self.output)
        return Path(file).read_text()


def environment(folder: Path, **settings: str) -> dict[str, str]:
    """Return an environment whose data and Dagster storage lie under `folder`, free of the developer's own settings."""
    other_variables = {
        name: value for name, value in os.environ.items() if not name.startswith(("NEST_", "DAGSTER_"))
    }
    storage = folder / "dagster"
    storage.mkdir(parents=True, exist_ok=True)
    return other_variables | {
        "NEST_DATA_DIR": str(folder / "data"),
        "DAGSTER_NEST_STORAGE": str(storage),
        **settings,
    }


def run(*command: str, folder: Path, timeout_s: float = 1_800, checkout: Path = ROOT, **settings: str) -> Run:
    """Run a command of the environment (`dagster …`, `dg …`, `python …`) from the root of a checkout."""
    process = subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        cwd=checkout,
        env=environment(folder, **settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
    )
    return Run(process.returncode, process.stdout, folder / "data", folder / "dagster", checkout)


def free_port() -> int:
    """Return a free loopback port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def copy_checkout(place: Path) -> None:
    """Copy the code of this checkout to a new folder."""

    def without_data(folder: str, names: list[str]) -> set[str]:
        elsewhere = {"data", "tests", "docs", "benchmarks"} if Path(folder) == ROOT else set()
        return {name for name in names if name.startswith(".") or name in {"__pycache__", *elsewhere}}

    shutil.copytree(ROOT, place, ignore=without_data)
