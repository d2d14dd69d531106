"""A synthetic CDM whose creation was killed has the same tables after another run."""

import json
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.sources.pcornet.databases.dump import DuckDBFile
from pipelines.sources.pcornet.databases.extract import extract
from tests.support.commands import ROOT
from tests.support.kill.kills import SEED, contents

MAKE = """
import json
import sys
from pathlib import Path
from pipelines.inputs.pcornet import ready_pcornet
from schemas.layout import Layout
from schemas.settings import Settings
from tests.support.kill.changes import kill_at
folder = Path(sys.argv[2])
count, at = kill_at(int(sys.argv[1]), str(folder)), {}
def watch(event, given):
    if event == "os.rename" and Path(given[0]).name == ".cdm.duckdb.part":
        at["stands"] = count[0]
    if event == "open" and str(given[0]) == str(folder / ".planted.parquet.part"):
        at["all_made"] = count[0]
sys.addaudithook(watch)
ready_pcornet(Settings(synthetic_children=int(sys.argv[3])), Layout(folder))
print(json.dumps([at["stands"], at["all_made"], count[0]]))
"""
CHILDREN = 60


def make(folder: Path, *, killed_at: int = -1, children: int = CHILDREN) -> subprocess.CompletedProcess[str]:
    """Create and extract a CDM in a process that kills itself at the given change to the folder."""
    command = [sys.executable, "-c", MAKE, str(killed_at), str(folder), str(children)]
    return subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=120)


def read_outputs(folder: Path, scratch: Path) -> dict[str, str]:
    """Return the hash of every file; of the database, whose bytes differ each time, those of its tables."""
    shutil.rmtree(scratch, ignore_errors=True)
    extract(DuckDBFile(folder / "cdm.duckdb"), scratch)
    tables = {
        f"database/{name}": value for name, value in contents(scratch).items() if name.endswith(".parquet")
    }
    files = contents(folder)
    del files["cdm.duckdb"]
    return files | tables


@pytest.fixture(scope="module")
def clean_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[int], dict[str, str]]:
    """The numbers of changes until the database exists, all is made, and the run ends; and the outputs of that run."""
    folder = tmp_path_factory.mktemp("undisturbed")
    process = make(folder / "made")
    assert process.returncode == 0, process.stderr[-2000:]
    return json.loads(process.stdout), read_outputs(folder / "made", folder / "beside")


@pytest.mark.long  # every day a run is killed while it writes events: tests/system/test_kill.py
@pytest.mark.parametrize(("kills", "earlier"), [(1, True), (12, False), (12, True)])
def test_cdm_has_same_tables_when_creation_was_killed(
    clean_run: tuple[list[int], dict[str, str]], kills: int, earlier: bool, tmp_path: Path
):
    (stands, all_made, last), expected = clean_run
    dice, folder = random.Random(f"{SEED} {kills} {earlier}"), tmp_path / "made"
    if earlier:
        assert make(folder, children=CHILDREN // 2).returncode == 0
        assert read_outputs(folder, tmp_path / "beside") != expected
    for _ in range(kills):
        for first, end in ((1, stands), (stands, all_made), (all_made, last + 1)):
            process = make(folder, killed_at=dice.randrange(first, end))
            assert process.returncode == -signal.SIGKILL, process.stderr[-2000:]

    last_run = make(folder)

    assert last_run.returncode == 0, last_run.stderr[-2000:]
    assert read_outputs(folder, tmp_path / "beside") == expected
