"""The metadata and messages of a run: data folder and settings, log lines, help, and errors without traceback."""

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import dagster as dg
import pytest
from dagster._core.errors import DagsterUserCodeProcessError

from assets import results as results_module
from assets.metadata import card_metadata
from assets.resources import Workspace
from assets.results import results
from assets.runtime.child_process import event_message
from assets.runtime.materialize import errors_as_failures, with_clear_errors
from nest_model.commands.parser import parser
from schemas.cards import StepCard
from schemas.settings import Settings
from schemas.sources import MIMIC, sources
from tests.support.commands import ROOT, run


@dg.asset
@with_clear_errors
def made(workspace: Workspace) -> dg.MaterializeResult:
    return dg.MaterializeResult(metadata={"rows": 3})


@dg.asset_check(asset=made)
@with_clear_errors
def checked(workspace: Workspace) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


@dg.asset
@with_clear_errors
def made_with_yield(workspace: Workspace) -> Iterator[dg.MaterializeResult]:
    yield dg.MaterializeResult(metadata={"rows": 3})


@pytest.mark.parametrize("asset", [made, made_with_yield])
def test_every_asset_records_data_folder_preset_and_seed(tmp_path, asset):
    workspace = Workspace(data_dir=str(tmp_path), preset="paper", seed=7)
    run = dg.materialize([made, made_with_yield, checked], resources={"workspace": workspace})
    (materialization,) = run.asset_materializations_for_node(asset.op.name)

    assert {name: value.value for name, value in materialization.metadata.items()} == {
        "rows": 3,
        "data_folder": str(tmp_path),
        "preset": "paper",
        "seed": 7,
    }


@pytest.mark.parametrize(
    ("errno_of_fault", "advice"),
    [
        (errno.ENOENT, "Correct its path, or make it again,"),
        (errno.EACCES, "Fix its permissions or its disk"),
    ],
)
def test_the_advice_on_a_file_fits_its_fault(errno_of_fault, advice):
    with pytest.raises(DagsterUserCodeProcessError) as error, errors_as_failures():
        raise OSError(errno_of_fault, os.strerror(errno_of_fault), "/hospital/admissions.csv")
    assert str(error.value).endswith(f"{advice} and run again.")


def test_small_count_of_shards_is_not_suppressed():
    metadata = card_metadata(
        StepCard(step="seqset", contract="seqset/2", counts={"shards": 3, "subjects": 3})
    )
    assert (metadata["shards"].value, metadata["subjects"].value) == (3, "< 11")


def test_event_message_counts_epochs_from_one():
    assert (
        event_message({"event": "evaluation", "epoch": 0, "metrics": {"val_loss": 0.5}})
        == "epoch 1: val_loss 0.5"
    )


def test_event_message_says_where_a_training_was_resumed():
    message = event_message({"event": "resumed", "epoch": 2, "step": 7})
    assert message == "resuming at epoch 3, after 7 steps of it"


def test_event_message_is_never_a_title_alone():
    for event in (
        {"event": "result", "metrics": {}},
        {"event": "trial", "trial": 0, "metrics": {"auroc": None}},
    ):
        assert event_message(event).endswith(": no number to show")


@pytest.fixture
def report_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("NEST_DATA_DIR", str(tmp_path))
    for source in ("mimic", "pcornet", "meds"):
        folder = tmp_path / source / "reports" / source
        folder.mkdir(parents=True)
        empty = {"tasks": {}, "mean_auroc": {"tasks": [], "models": {}}}
        (folder / "metrics.json").write_text(
            json.dumps(empty | {"preset": "paper", "pretraining": {"seed": 7}})
        )
    return tmp_path


def test_results_name_preset_seed_data_folder_and_ui_command(report_folder):
    text = results("mimic")
    assert "Preset:      paper, seed 7\n" in text
    assert f"Data:        {report_folder}\n" in text
    assert f"In the UI:   NEST_DATA_DIR={report_folder} make ui, " in text


def test_ui_command_names_the_inputs_of_its_source_alone(report_folder, monkeypatch):
    demo, codes, cdm = (report_folder / name for name in ("the demo", "codes", "cdm.duckdb"))
    monkeypatch.setenv("NEST_MIMIC_DIR", str(demo))
    monkeypatch.setenv("NEST_VOCAB_DIR", str(codes))
    monkeypatch.setenv("NEST_PCORNET_DATABASE", str(cdm))
    monkeypatch.setenv("NEST_SITE_SALT", "sixteen characters")
    for source, inputs in {
        "mimic": f"NEST_MIMIC_DIR='{demo}' NEST_VOCAB_DIR={codes}",
        "pcornet": f"NEST_PCORNET_DATABASE={cdm} NEST_VOCAB_DIR={codes}",
        "meds": f"NEST_MIMIC_DIR='{demo}' NEST_VOCAB_DIR={codes}",
    }.items():
        text = results(source)
        assert f"In the UI:   NEST_DATA_DIR={report_folder} {inputs} make ui, " in text
        assert ("with NEST_SITE_SALT set as in the run" in text) == (source == "pcornet")
        assert "sixteen" not in text


def test_ui_command_on_a_database_server_names_what_it_leaves_out(report_folder, monkeypatch):
    monkeypatch.setenv("NEST_PCORNET_DATABASE", "postgres")
    monkeypatch.setenv("NEST_PCORNET_UNLINKED", "day")
    monkeypatch.setenv("NEST_DB_DSN", "postgresql://db.example/cdm?password=canary")
    text = results("pcornet")
    assert "NEST_PCORNET_DATABASE=postgres NEST_PCORNET_UNLINKED=day make ui, " in text
    assert "with NEST_DB_DSN set as in the run" in text
    assert "canary" not in text


def test_ui_command_of_a_source_of_another_package_names_no_input(report_folder, monkeypatch):
    register = replace(MIMIC, name="register", input_settings=())
    monkeypatch.setattr(results_module, "sources", lambda: {"register": register})
    monkeypatch.setattr(results_module, "cohort_sources", lambda: {"register": register})
    shutil.copytree(report_folder / "mimic/reports/mimic", report_folder / "register/reports/register")
    assert f"In the UI:   NEST_DATA_DIR={report_folder} make ui, " in results("register")


def test_every_input_setting_of_a_source_is_a_setting():
    names = {name for spec in sources().values() for name in spec.input_settings}
    assert {"mimic_dir", "meds_dir", "pcornet_dir", "instacart_dir"} <= names <= set(Settings.model_fields)


def test_predict_help_hides_internal_flags(capsys):
    with pytest.raises(SystemExit):
        parser().parse_args(["predict", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "--die-with-parent" not in text
    assert "default: each patient's last stay, at the task's prediction time" in text


def test_documented_commands_show_no_dagster_warning():
    code = (
        "import nest_environment, warnings; nest_environment.settle(); warnings.warn("
        "'Function `job_execute_command` is superseded and its usage is discouraged.', FutureWarning)"
    )
    variables = {"PYTHONPATH": str(ROOT / "assets" / "environment"), "PATH": ""}
    process = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True
    )
    assert process.stderr == ""


def test_last_lines_of_a_short_step_reach_the_console(tmp_path):
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
    variables = {"PYTHONPATH": str(ROOT / "assets" / "environment"), "PATH": os.environ["PATH"]}
    process = subprocess.run(
        [sys.executable, "-c", code, tmp_path], env=variables, capture_output=True, text=True, check=True
    )
    assert process.stderr.splitlines() == [f"unchanged {step}" for step in range(10)]


@pytest.mark.parametrize(
    "command",
    [
        ("dagster", "job", "execute", "-j", "mimic_etl"),
        pytest.param(("dagster", "asset", "materialize", "--select", "mimic_raw"), marks=pytest.mark.long),
    ],
    ids=["job", "asset"],
)
def test_invalid_setting_is_one_message_without_traceback(command: tuple[str, ...], tmp_path):
    result = run(*command, folder=tmp_path, NEST_PRESET="papr")
    assert result.returncode != 0
    assert "NEST_PRESET: Input should be 'default' or 'paper'" in result.output
    assert "resource_fn" not in result.output
    assert "File " not in result.output


def test_unknown_asset_is_one_message_with_the_nearest_names(tmp_path):
    result = run("dagster", "asset", "materialize", "--select", "mimic_evidence_hert", folder=tmp_path)
    assert result.returncode != 0
    assert "['mimic_evidence_hert'] were selected" in result.output
    assert '["mimic_evidence_heart"]' in result.output
    assert "File " not in result.output
