"""What a run tells beside its numbers: where it was made, under which choices, and what a person would look for."""

import json
import os
import subprocess
import sys

import dagster as dg
import pytest

from assets.metadata import card_metadata
from assets.resources import Workspace
from assets.results import results
from assets.runtime.child_process import event_message
from assets.runtime.materialize import with_clear_errors
from nest_model.commands.parser import parser
from schemas.cards import StepCard
from tests.support.commands import ROOT, run


@dg.asset
@with_clear_errors
def made(workspace: Workspace) -> dg.MaterializeResult:
    return dg.MaterializeResult(metadata={"rows": 3})


@dg.asset_check(asset=made)
@with_clear_errors
def checked(workspace: Workspace) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


def test_every_asset_says_in_which_folder_and_under_which_choices_it_was_made(tmp_path):
    workspace = Workspace(data_dir=str(tmp_path), preset="paper", seed=7)
    run = dg.materialize([made, checked], resources={"workspace": workspace})
    (told,) = run.asset_materializations_for_node("made")

    assert {name: value.value for name, value in told.metadata.items()} == {
        "rows": 3,
        "data_folder": str(tmp_path),
        "preset": "paper",
        "seed": 7,
    }


def test_a_few_shards_are_no_few_people():
    told = card_metadata(StepCard(step="seqset", contract="seqset/1", counts={"shards": 3, "subjects": 3}))
    assert (told["shards"].value, told["subjects"].value) == (3, "< 11")


def test_epochs_are_counted_from_one_wherever_people_look():
    assert (
        event_message({"event": "evaluation", "epoch": 0, "metrics": {"val_loss": 0.5}})
        == "epoch 1: val_loss 0.5"
    )


@pytest.fixture
def reported(tmp_path, monkeypatch):
    monkeypatch.setenv("NEST_DATA_DIR", str(tmp_path))
    folder = tmp_path / "mimic" / "reports" / "mimic"
    folder.mkdir(parents=True)
    empty = {"tasks": {}, "mean_auroc": {"tasks": [], "models": {}}}
    (folder / "metrics.json").write_text(json.dumps(empty | {"preset": "paper", "pretraining": {"seed": 7}}))
    return tmp_path


def test_a_run_ends_by_naming_its_preset_seed_folder_and_the_ui_that_shows_it(reported):
    text = results("mimic")
    assert "Preset:      paper, seed 7\n" in text
    assert f"Data:        {reported}\n" in text
    assert f"In the UI:   NEST_DATA_DIR={reported} make ui, " in text


def test_help_shows_what_a_person_may_want_and_says_it_in_words(capsys):
    with pytest.raises(SystemExit):
        parser().parse_args(["predict", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "--die-with-parent" not in told
    assert "left out: each patient's last stay, at the time the task predicts" in told


def test_no_documented_command_opens_with_a_warning_of_dagster_s():
    code = (
        "import nest_environment, warnings; nest_environment.settle(); warnings.warn("
        "'Function `job_execute_command` is superseded and its usage is discouraged.', FutureWarning)"
    )
    beside = {"PYTHONPATH": str(ROOT / "assets" / "environment"), "PATH": ""}
    told = subprocess.run(
        [sys.executable, "-c", code], env=beside, capture_output=True, text=True, check=True
    )
    assert told.stderr == ""


def test_the_last_lines_of_steps_that_end_at_once_reach_the_console(tmp_path):
    code = """
import signal
import sys
import nest_environment
nest_environment.settle()
signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a suite started in the background may hand on one that is ignored
from dagster._core.execution.compute_logs import mirror_stream_to_file
for step in range(10):
    with mirror_stream_to_file(sys.stderr, f"{sys.argv[1]}/{step}.err"):
        print("unchanged", step, file=sys.stderr, flush=True)
"""
    beside = {"PYTHONPATH": str(ROOT / "assets" / "environment"), "PATH": os.environ["PATH"]}
    told = subprocess.run(
        [sys.executable, "-c", code, tmp_path], env=beside, capture_output=True, text=True, check=True
    )
    assert told.stderr.splitlines() == [f"unchanged {step}" for step in range(10)]


@pytest.mark.parametrize(
    "command",
    [
        ("dagster", "job", "execute", "-j", "mimic_etl"),
        pytest.param(("dagster", "asset", "materialize", "--select", "mimic_raw"), marks=pytest.mark.long),
    ],
    ids=["job", "asset"],
)
def test_a_wrong_setting_is_one_message_and_no_traceback(command: tuple[str, ...], tmp_path):
    found = run(*command, folder=tmp_path, NEST_PRESET="papr")
    assert found.returncode != 0
    assert "NEST_PRESET: Input should be 'default' or 'paper'" in found.output
    assert "resource_fn" not in found.output
    assert "File " not in found.output
