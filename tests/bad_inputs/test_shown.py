"""Tests that a bad input fails the Dagster run with the same one message, no stack and no later step."""

import shutil
from pathlib import Path

import dagster as dg
import pytest

from assets.resources import Workspace
from assets.sources.common import source_assets
from tests.bad_inputs.cases import CASES
from tests.bad_inputs.clean import write_clean
from tests.bad_inputs.outcomes import Case, Refusal
from tests.bad_inputs.test_bad_inputs import assert_message
from tests.support.commands import run

MIMIC_ASSETS = source_assets("mimic")

CASE_NAMES = ("ids_with_a_fraction", "truncated_gzip", "admission_twice", "gsns_of_another_list")
BY_NAME = {case.name: case for case in CASES}


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("raw")
    write_clean(folder)
    return folder


def damaged_input(case: Case, raw: Path, folder: Path) -> Path:
    shutil.copytree(raw, folder / "raw")
    case.damage(folder / "raw")
    return folder / "raw"


@pytest.mark.parametrize("name", CASE_NAMES)
def test_run_fails_with_one_message_and_no_stack(name: str, raw: Path, tmp_path: Path):
    case = BY_NAME[name]
    assert isinstance(case.outcome, Refusal)
    bad = damaged_input(case, raw, tmp_path)
    workspace = Workspace(data_dir=str(tmp_path / "data"), mimic_dir=str(bad), vocab_dir=str(bad / "vocab"))
    result = dg.materialize(MIMIC_ASSETS, resources={"workspace": workspace}, raise_on_error=False)
    assert not result.success
    (failure,) = [
        event for event in result.all_events if event.event_type is dg.DagsterEventType.STEP_FAILURE
    ]
    error = failure.step_failure_data.error
    causes = [error]
    while causes[-1].cause:
        causes.append(causes[-1].cause)
    input_errors = [cause for cause in causes if cause.cls_name == "InputError"]
    assert len(input_errors) == 1
    assert input_errors[0].stack == []
    assert_message(input_errors[0].message.strip().replace(str(tmp_path), ""), case, case.outcome)
    assert not (tmp_path / "data" / "mimic" / "seqset").exists()


@pytest.mark.long
def test_command_line_shows_the_message_and_no_stack(raw: Path, tmp_path: Path):
    case = BY_NAME["labevent_id_twice"]
    bad = damaged_input(case, raw, tmp_path)
    result = run(
        "dagster", "asset", "materialize", "--select", "mimic_raw,mimic_subjects,mimic_encounters,mimic_events",
        folder=tmp_path,
        NEST_MIMIC_DIR=str(bad),
        NEST_VOCAB_DIR=str(bad / "vocab"),
    )  # fmt: skip
    assert result.returncode != 0
    assert f"{case.table}: column labevent_id: 2 of 3,504 rows repeat" in result.output
    assert "Traceback" not in result.output
    assert "Stack Trace" not in result.output
