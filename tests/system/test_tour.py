"""The documented command, from raw synthetic files to a report, and its results."""

import itertools
import json
import re
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import dagster as dg
import pyarrow.parquet as pq
import pytest

from assets.definitions import build
from nest_model.config import ModelConfig
from nest_model.recipe import result_fields
from nest_model.training.recipe import FINETUNING, PRETRAINING
from schemas.cards import StepCard
from schemas.label_counts import suppress_label_counts
from schemas.layout import Layout
from schemas.suppress import WITHHELD
from schemas.tables.attrition import read_attrition
from tests.support.commands import CROSSWALKS, DEMO, ROOT, Run, run


@pytest.fixture
def instance(full_run: Run, monkeypatch: pytest.MonkeyPatch) -> dg.DagsterInstance:
    monkeypatch.setenv("DAGSTER_NEST_STORAGE", str(full_run.storage))
    with dg.DagsterInstance.from_config(str(ROOT)) as run_instance:
        yield run_instance


def test_mimic_full_writes_a_report(full_run: Run):
    assert full_run.returncode == 0, full_run.output[-3000:]
    folder = full_run.data / "mimic" / "reports" / "mimic"
    assert full_run.output.splitlines()[-1].endswith(f"done; see {folder / 'report.html'}")
    page = (folder / "report.html").read_text()
    metrics = json.loads((folder / "metrics.json").read_text())
    assert set(metrics["tasks"]) == set(full_run.mimic_cohorts)
    assert "http://" not in re.sub(r"http://www\.w3\.org/\S+", "", page), "the page is self-contained"


def test_every_asset_was_materialized_and_every_check_evaluated(instance: dg.DagsterInstance, full_run: Run):
    repository = build(full_run.cohort_folder).get_repository_def()
    mine = repository.get_job("mimic_full").asset_layer.executable_asset_keys
    assert [key for key in mine if not instance.get_latest_materialization_event(key)] == []
    checks = {key for key in repository.asset_graph.asset_check_keys if key.asset_key in mine}
    executions = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(checks))
    assert len(checks) > 40
    assert {key for key in checks if key not in executions or executions[key].event is None} == set()


def test_mimic_full_shows_no_library_warning(full_run: Run):
    assert full_run.output
    assert not re.search(r"\w+Warning\b|superseded|deprecated", full_run.output)


def test_terminal_counts_steps_and_is_never_silent_for_long(full_run: Run):
    lines = full_run.output.splitlines()
    assert "dagster - INFO" not in full_run.output
    assert any(re.match(r"[\d:]{8} \[(\d+)/\1\] done: .*mimic_report", line) for line in lines)
    times = [datetime.strptime(line[:8], "%H:%M:%S") for line in lines if re.match(r"\d\d:\d\d:\d\d ", line)]
    gaps = [(later - earlier).seconds for earlier, later in itertools.pairwise(times) if later >= earlier]
    assert max(gaps) <= 30


def test_training_progress_is_logged_and_observed(instance: dg.DagsterInstance, full_run: Run):
    observations = instance.fetch_observations(dg.AssetKey("mimic_nest"), limit=50).records
    losses = [record.asset_observation.metadata["val_loss"].value for record in observations]
    assert len(losses) >= 2
    assert all(loss > 0 for loss in losses)
    assert re.search(r"mimic_nest: epoch 1: .*val_loss", full_run.log)


def test_model_page_has_the_model_card_and_rounded_metrics(instance: dg.DagsterInstance):
    for name in ("mimic_nest", "mimic_mortality_nest"):
        event = instance.get_latest_materialization_event(dg.AssetKey(name))
        metadata = event.asset_materialization.metadata
        assert "## Limits" in metadata["model_card"].value
        assert metadata["model"].value.endswith(name)
        values = [entry.value for entry in metadata.values() if isinstance(entry, dg.FloatMetadataValue)]
        assert values
        assert all(value == float(f"{value:.4g}") or value.is_integer() for value in values)


def test_table_assets_show_row_counts_and_columns(instance: dg.DagsterInstance, full_run: Run):
    for name in ("subjects", "encounters", "vocab"):
        event = instance.get_latest_materialization_event(dg.AssetKey(f"mimic_{name}"))
        metadata = event.asset_materialization.metadata
        file = full_run.data / "mimic" / f"{name}.parquet"
        assert metadata["dagster/row_count"].value == pq.read_metadata(file).num_rows
        columns = [column.name for column in metadata["dagster/column_schema"].value.columns]
        assert columns == pq.read_schema(file).names


def test_data_folder_is_private_to_the_owner(full_run: Run):
    assert (full_run.data / "mimic").stat().st_mode & 0o077 == 0


def test_results_command_names_the_report_and_the_ui(full_run: Run):
    result = run("python", "-m", "assets.results", "mimic", folder=full_run.data.parent)
    assert result.returncode == 0
    assert "LightGBM" in result.output
    assert "report.html" in result.output
    assert "make ui" in result.output


def test_fine_tuned_model_scores_new_patients(full_run: Run, tmp_path: Path):
    root = full_run.data / "mimic"
    new = tmp_path / "new"
    generation = run(
        "python", "-m", "pipelines.synthetic", "mimic",
        "--patients", "20", "--seed", "99", "--out", str(tmp_path / "raw"),
        folder=tmp_path,
    )  # fmt: skip
    assert generation.returncode == 0, generation.output
    tokenization = run(
        "python", "-m", "pipelines", "tokenize",
        "--hosp", str(tmp_path / "raw" / "hosp"), "--crosswalks", str(tmp_path / "raw" / "vocab"),
        "--frozen", str(root), "--out", str(new),
        folder=tmp_path,
    )  # fmt: skip
    assert tokenization.returncode == 0, tokenization.output
    prediction = run(
        "python", "-m", "nest_model", "predict", "--model", str(root / "models" / "mimic_mortality_nest"),
        "--seqset", str(new / "seqset"), "--out", str(tmp_path / "predictions.parquet"),
        folder=tmp_path,
    )  # fmt: skip
    assert prediction.returncode == 0, prediction.output
    assert prediction.output.splitlines()[-1].endswith(
        f"the predictions are in {tmp_path / 'predictions.parquet'}"
    )
    predictions = pq.read_table(tmp_path / "predictions.parquet")
    assert 0 < len(predictions) <= 20
    assert set(predictions["split"].to_pylist()) == {"new"}
    assert all(0 <= value <= 1 for row in predictions["probability"].to_pylist() for value in row)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("dg", "check", "defs"), marks=pytest.mark.long),
        pytest.param(("dagster", "asset", "list"), marks=pytest.mark.long),
        pytest.param(("dagster", "job", "list", "-m", "assets.definitions"), marks=pytest.mark.long),
    ],
    ids=" ".join,
)
def test_other_dagster_commands_find_the_assets(command: tuple[str, ...], tmp_path: Path):
    result = run(*command, folder=tmp_path)
    assert result.returncode == 0, result.output
    assert "mimic_" in result.output or "loaded successfully" in result.output


@pytest.mark.demo
@pytest.mark.long
@pytest.mark.skipif(not DEMO.exists(), reason="the MIMIC-IV demo is not beside the repository")
@pytest.mark.parametrize("preset", ["default", "paper"])
def test_mimic_full_runs_on_the_real_demo(preset: str, tmp_path: Path):
    result = run_on_demo(tmp_path, NEST_PRESET=preset)
    assert_withheld_rows_are_nowhere(Layout(result.data / "mimic"))


@pytest.mark.demo
@pytest.mark.long
@pytest.mark.skipif(not DEMO.exists(), reason="the MIMIC-IV demo is not beside the repository")
def test_the_papers_nest_runs_on_the_real_demo_at_a_small_size(tmp_path: Path):
    """The config and both recipes of its models are the paper's, but for the sizes and epochs."""
    sizes = {"d_model": 16, "heads": 2, "d_ff": 16, "layers": 1}
    result = run_on_demo(
        tmp_path,
        NEST_PRESET="paper",
        NEST_MODEL="paper",
        NEST_PRETRAINING=" ".join(f"{name}={size}" for name, size in {**sizes, "epochs": 2}.items()),
        NEST_FINETUNING="epochs=2",
    )
    layout = Layout(result.data / "mimic")
    for name, recipe in (("mimic_nest", PRETRAINING["paper"]), ("mimic_long_stay_nest", FINETUNING["paper"])):
        content = json.loads((layout.model(name) / "config.json").read_text())
        config = ModelConfig.from_json(json.dumps(content["model"]))
        papers_config = ModelConfig.preset(
            "paper", config.vocab_size, cse_position="days_since_prior", **sizes
        )
        assert config == papers_config
        papers_fields = json.loads(json.dumps(asdict(recipe.with_changes(epochs=2))))
        assert result_fields(content["training"]["recipe"]) == result_fields(papers_fields)


def run_on_demo(folder: Path, **settings: str) -> Run:
    """Run mimic_full on the demo to its report."""
    result = run(
        "dagster", "job", "execute", "-j", "mimic_full",
        folder=folder, NEST_MIMIC_DIR=str(DEMO), NEST_VOCAB_DIR=str(CROSSWALKS), **settings,
    )  # fmt: skip
    assert result.returncode == 0, result.output[-3000:]
    assert (result.data / "mimic" / "reports" / "mimic" / "report.html").exists()
    return result


def assert_withheld_rows_are_nowhere(layout: Layout) -> None:
    """Check that a number of rows that a cohort's page withholds is neither elsewhere on it nor on its models' cards.

    Numbers under 100 may mean something else.
    """
    num_withheld = 0
    for name in ("mimic_long_stay", "mimic_readmission_any"):
        counts = StepCard.read(layout.cards, f"{name}_labels").counts
        texts = suppress_label_counts(counts, read_attrition(layout.cohort(name) / "attrition.csv"))
        withheld = {counts[key] for key, text in texts.items() if text == WITHHELD and counts[key] >= 100}
        withheld |= {counts["rows"] - counts["rows_test"]}
        num_withheld += len(withheld)
        folders = (
            layout.report(name),
            layout.report(f"{name}_leak_audit"),
            *layout.root.glob(f"models/{name}_*"),
        )
        files = [file for folder in folders for file in folder.rglob("*") if file.suffix in (".html", ".md")]
        assert len(files) > 3
        for file in files:
            text = re.sub(r"<svg.*?</svg>|<[^>]+>", " ", file.read_text(), flags=re.DOTALL)
            for number in withheld:
                assert not re.search(rf"(?<![\w.,−-]){number}(?![\w.,%])", text), f"{file}: {number}"
    assert num_withheld > 3, "the demo withholds no number of rows any more"
