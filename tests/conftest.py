"""Order of the tests, and the full run that several tests share."""

import fcntl
import gc
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from assets.cohort_files import COHORT_FILES
from schemas.loading import loading
from tests.support.commands import ROOT, SMALL, Run, copy_checkout, run
from tests.support.examples import OF_THE_LONG_SUITE

TESTS = Path(__file__).parent

# read when torch and NumPy load: three workers share two cores, on which waiting threads would spin
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as `python -m nest_model` has it
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# a busy machine is no fault of the code's; `make test` looks at fewer examples than `make test-long`
hypothesis.settings.register_profile("long", deadline=None, max_examples=OF_THE_LONG_SUITE)
hypothesis.settings.register_profile("everyday", deadline=None, max_examples=30)

# a full run of every cohort is for the long suite; lists of codes are learnt every day in tests/nest_model/commands
EVERYDAY_COHORTS = {"mimic_mortality"}


def is_everyday(config: pytest.Config) -> bool:
    return "not long" in config.option.markexpr


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("hypothesis_profile", None):
        hypothesis.settings.load_profile("everyday" if is_everyday(config) else "long")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Collect tests without collecting garbage, which took four of ten seconds in each worker."""
    with loading():
        result = yield
    gc.freeze()  # nor later among what was loaded
    return result


@pytest.hookimpl(trylast=True)  # of those that were chosen
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest tests first, so that no worker is still busy while the others are idle.

    One test file makes the full run; the others that use it come later, so that no worker waits for it.
    """
    waiting = sorted({item.path for item in items if "full_run" in getattr(item, "fixturenames", ())})
    early = {"system", "architecture", "assets", "nest_model"}

    def turn(item: pytest.Item) -> int:
        if item.path in waiting:
            return 0 if item.path == waiting[0] else 2
        return 1 if item.path.relative_to(TESTS).parts[0] in early else 3

    items.sort(key=turn)


@pytest.fixture(scope="session")
def full_run(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Run:
    """Run `dagster job execute -j mimic_full` on 150 synthetic patients, once for all workers of xdist."""
    base_folder = tmp_path_factory.getbasetemp()
    folder = (base_folder if worker_id == "master" else base_folder.parent) / "full_run"
    folder.mkdir(exist_ok=True)
    record = folder / "run.json"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not record.exists():
            checkout = checkout_with_few_cohorts(folder) if is_everyday(pytestconfig) else ROOT
            variables = SMALL | {"PYTHONPATH": str(checkout)}
            result = run(
                "dagster", "job", "execute", "-j", "mimic_full", folder=folder, checkout=checkout, **variables
            )
            record.write_text(json.dumps(asdict(result), default=str))
    content = json.loads(record.read_text())
    return Run(**content | {name: Path(content[name]) for name in ("data", "storage", "checkout")})


def checkout_with_few_cohorts(folder: Path) -> Path:
    """Copy this checkout, but of MIMIC-IV's cohorts those of the everyday suite alone."""
    checkout = folder / "checkout"
    copy_checkout(checkout)
    for file in (checkout / COHORT_FILES.relative_to(ROOT)).glob("mimic_*.yaml"):
        if file.stem not in EVERYDAY_COHORTS:
            file.unlink()
    return checkout
