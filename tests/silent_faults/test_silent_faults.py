"""Tests that each fault is caught by the check or refusal in the table, which is silent without the fault."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from tests.silent_faults.__main__ import PAGE, page
from tests.silent_faults.chain import TABLES, up_to, whole_chain, write_raw
from tests.silent_faults.fault import Findings, Sandbox, SilentFault, Use
from tests.silent_faults.faults import ALL

FEWEST = 11


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A synthetic input, to which `baselines` adds the output of a clean run; tests must not write here."""
    folder = tmp_path_factory.mktemp("clean")
    write_raw(folder)
    return folder


@pytest.fixture(scope="module")
def baselines(clean: Path) -> dict[Use, Findings]:
    """The findings of each use on an undamaged sandbox, shared by all faults; a part of the chain finds no more."""
    findings = whole_chain(Sandbox(clean))
    assert findings.refusals == {}
    return dict.fromkeys([whole_chain, *map(up_to, TABLES)], findings)


@contextmanager
def copy(clean: Path, fault: SilentFault) -> Iterator[Sandbox]:
    """Yield a temporary copy of the input and, for a fault in the output, of the output."""
    folder = clean.parent / f"sandbox-{ALL.index(fault)}"
    try:
        shutil.copytree(clean / "raw", folder / "raw")
        if fault.place not in ("input", "code"):
            shutil.copytree(clean / "data", folder / "data")
        yield Sandbox(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def use_undamaged(clean: Path, fault: SilentFault, baselines: dict[Use, Findings]) -> Findings:
    if fault.use not in baselines:
        with copy(clean, fault) as sandbox:
            baselines[fault.use] = fault.use(sandbox)
    return baselines[fault.use]


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, id=fault.name.replace(" ", "_"), marks=() if fault.is_quick else pytest.mark.long)
        for fault in ALL
    ],
)
def test_fault_is_caught_by_a_catch_that_is_silent_without_the_fault(
    fault: SilentFault, clean: Path, baselines: dict[Use, Findings]
):
    without_fault = use_undamaged(clean, fault, baselines)
    assert not fault.caught_by.notices(without_fault), without_fault
    with copy(clean, fault) as sandbox, fault.damage(sandbox) or nullcontext():
        findings = fault.use(sandbox)
    assert fault.caught_by.notices(findings), findings


def test_table_has_enough_faults_with_unique_names():
    names = [fault.name for fault in ALL]
    assert len(names) == len(set(names)) >= FEWEST


@pytest.mark.docs
def test_docs_page_equals_the_generated_page():
    assert PAGE.read_text() == page(), "run `python -m tests.silent_faults`"
