"""Every fault of the table is noticed by the very check or refusal the table names, which is silent without it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from tests.silent_faults.__main__ import PAGE, page
from tests.silent_faults.chain import whole_chain, write_raw
from tests.silent_faults.fault import Fault, Findings, Use, World
from tests.silent_faults.faults import ALL

FEWEST = 11


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A synthetic input and what a clean run made of it; nobody writes here."""
    folder = tmp_path_factory.mktemp("clean")
    write_raw(folder)
    assert whole_chain(World(folder)).refusals == {}
    return folder


@pytest.fixture(scope="module")
def unharmed() -> dict[Use, Findings]:
    """What each use says of an unharmed world, once for all faults that share it."""
    return {}


@contextmanager
def copy(clean: Path, fault: Fault) -> Iterator[World]:
    """Copy the input, and for a fault in what a run wrote the output as well; removed when it has served."""
    folder = clean.parent / f"world-{ALL.index(fault)}"
    try:
        shutil.copytree(clean / "raw", folder / "raw")
        if fault.place not in ("input", "code"):
            shutil.copytree(clean / "data", folder / "data")
        yield World(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def use_unharmed(clean: Path, fault: Fault, unharmed: dict[Use, Findings]) -> Findings:
    if fault.use not in unharmed:
        with copy(clean, fault) as world:
            unharmed[fault.use] = fault.use(world)
    return unharmed[fault.use]


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, id=fault.name.replace(" ", "_"), marks=() if fault.is_quick else pytest.mark.long)
        for fault in ALL
    ],
)
def test_fault_is_noticed_by_its_catch_alone(fault: Fault, clean: Path, unharmed: dict[Use, Findings]):
    without_fault = use_unharmed(clean, fault, unharmed)
    assert not fault.caught_by.notices(without_fault), without_fault
    with copy(clean, fault) as world, fault.damage(world) or nullcontext():
        findings = fault.use(world)
    assert fault.caught_by.notices(findings), findings


def test_table_has_at_least_the_promised_number_of_faults_each_named_once():
    names = [fault.name for fault in ALL]
    assert len(names) == len(set(names)) >= FEWEST


def test_page_is_the_table():
    assert PAGE.read_text() == page(), "run `python -m tests.silent_faults`"
