"""A synthetic CDM whose making or extraction is killed comes, run again, to what an undisturbed run makes."""

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
    """Make and extract a CDM in a process that kills itself at this change to the folder."""
    command = [sys.executable, "-c", MAKE, str(killed_at), str(folder), str(children)]
    return subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=120)


def made_in(folder: Path, beside: Path) -> dict[str, str]:
    """Return every file by its hash, and the database, whose bytes differ each time, by those of its tables."""
    shutil.rmtree(beside, ignore_errors=True)
    extract(DuckDBFile(folder / "cdm.duckdb"), beside)
    tables = {
        f"database/{name}": value for name, value in contents(beside).items() if name.endswith(".parquet")
    }
    found = contents(folder)
    del found["cdm.duckdb"]
    return found | tables


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[int], dict[str, str]]:
    """The changes at which the database stands, all is made, and the run ends; and what an undisturbed run makes."""
    folder = tmp_path_factory.mktemp("undisturbed")
    ended = make(folder / "made")
    assert ended.returncode == 0, ended.stderr[-2000:]
    return json.loads(ended.stdout), made_in(folder / "made", folder / "beside")


@pytest.mark.parametrize(
    ("kills", "earlier"),
    [(1, True), *(pytest.param(12, kept, marks=pytest.mark.long) for kept in (False, True))],
)
def test_a_cdm_killed_while_it_is_made_comes_to_the_same_tables(
    undisturbed: tuple[list[int], dict[str, str]], kills: int, earlier: bool, tmp_path: Path
):
    (stands, all_made, last), expected = undisturbed
    dice, folder = random.Random(f"{SEED} {kills} {earlier}"), tmp_path / "made"
    if earlier:
        assert make(folder, children=CHILDREN // 2).returncode == 0
        assert made_in(folder, tmp_path / "beside") != expected
    for _ in range(kills):
        for first, beyond in ((1, stands), (stands, all_made), (all_made, last + 1)):
            killed = make(folder, killed_at=dice.randrange(first, beyond))
            assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]

    again = make(folder)

    assert again.returncode == 0, again.stderr[-2000:]
    assert made_in(folder, tmp_path / "beside") == expected
