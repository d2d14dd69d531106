"""A rerun repeats only the steps that changed, and Dagster's staleness agrees."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest

from assets.definitions import build
from assets.resources import Workspace
from schemas import settings
from schemas.cards import step_of
from schemas.rules import DataRules
from tests.support.commands import ROOT, SMALL, Run

ETL = {"raw", "subjects", "encounters", "events", "drug_lookup", "vocab", "seqset", "subject_years"}
FULL_RUN_SETTINGS: dict[str, object] = {
    name.removeprefix("NEST_").lower(): int(value) if value.isdecimal() else value
    for name, value in SMALL.items()
}


class RerunFolder:
    """A copy of a run's data folder and Dagster history, on which steps are run again in this process."""

    def __init__(self, full_run: Run, folder: Path, instance: dg.DagsterInstance) -> None:
        self.data, self.instance = folder / "data", instance
        self.cohort_folder, self.cohorts = full_run.cohort_folder, full_run.mimic_cohorts
        self.labels = self.each_cohorts("labels")
        self.models = {"nest"} | self.each_cohorts("leak_audit", "nest", "lightgbm", "yardsticks")
        self.pages = {"report"} | self.each_cohorts("report")
        self.chain = ETL | self.labels | self.models | self.pages

    def each_cohorts(self, *steps: str) -> set[str]:
        """Return the names of these steps of every cohort."""
        return {f"{cohort}_{name}" for cohort in self.cohorts for name in steps}

    def materialize(self, steps: set[str]) -> set[str]:
        """Materialize these steps and return those that ran."""
        assets = [
            asset for asset in build(self.cohort_folder).assets if isinstance(asset, dg.AssetsDefinition)
        ]
        result = dg.materialize(
            assets,
            selection=[key for asset in assets for key in asset.keys if step(key) in steps],
            instance=self.instance,
            resources={
                "workspace": Workspace(data_dir=str(self.data), **FULL_RUN_SETTINGS),
                "pipes": dg.PipesSubprocessClient(),
            },
        )
        metadata_by_step = {
            step(event.asset_key): event.step_materialization_data.materialization.metadata
            for event in result.get_asset_materialization_events()
        }
        assert set(metadata_by_step) == steps
        return {name for name, metadata in metadata_by_step.items() if "unchanged" not in metadata}

    def status(self) -> dict[StaleStatus, set[str]]:
        """Return the steps of the chain by Dagster's stale status."""
        graph = build(self.cohort_folder).get_repository_def().asset_graph
        resolver = CachingStaleStatusResolver(self.instance, graph, LoadingContextForTest(self.instance))
        steps_by_status: dict[StaleStatus, set[str]] = {}
        for key in graph.get_all_asset_keys():
            if step(key) in self.chain and key.to_user_string().startswith("mimic_"):
                steps_by_status.setdefault(resolver.get_status(key), set()).add(step(key))
        return steps_by_status

    def hashes(self) -> dict[str, str]:
        files = [path for path in self.data.rglob("*") if path.is_file()]
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def step(key: dg.AssetKey) -> str:
    return step_of(key.to_user_string(), "mimic")


@pytest.fixture
def rerun(full_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RerunFolder]:
    """Yield a copy of the data folder and history of the full run."""
    assert full_run.returncode == 0, full_run.output[-3000:]
    shutil.copytree(full_run.data, tmp_path / "data")
    shutil.copytree(full_run.storage, tmp_path / "dagster")
    monkeypatch.setenv("DAGSTER_NEST_STORAGE", str(tmp_path / "dagster"))
    with dg.DagsterInstance.from_config(str(ROOT)) as instance:
        yield RerunFolder(full_run, tmp_path, instance)


def test_unchanged_rerun_does_nothing_and_dagster_shows_all_fresh(rerun: RerunFolder):
    old_hashes = rerun.hashes()
    assert rerun.materialize(rerun.chain) == set()
    assert rerun.hashes() == old_hashes
    assert rerun.status() == {StaleStatus.FRESH: rerun.chain}


@pytest.mark.long
def test_changed_vocabulary_rule_redoes_no_extraction(rerun: RerunFolder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(settings.PRESETS, "default", DataRules(top_labs=20))
    assert rerun.materialize(ETL | rerun.labels) == {"vocab", "seqset"}
    # what an arrow of the graph joins to the two; the rest is stale by its step's key
    below = {"nest"} | rerun.each_cohorts("leak_audit", "lightgbm")
    assert rerun.status() == {StaleStatus.FRESH: rerun.chain - below, StaleStatus.STALE: below}


@pytest.mark.long  # every day the keys of steps say it: tests/assets/runtime/test_step_cache.py
def test_changed_cohort_file_redoes_only_labels_and_models_of_the_cohort(rerun: RerunFolder, tmp_path: Path):
    shutil.copytree(rerun.cohort_folder, tmp_path / "cohorts")
    rerun.cohort_folder = tmp_path / "cohorts"
    file = rerun.cohort_folder / "mimic_mortality.yaml"
    file.write_text(file.read_text().replace("24 hours", "12 hours"))

    assert rerun.status()[StaleStatus.STALE] == {"mimic_mortality_labels"}
    assert rerun.materialize(ETL | rerun.labels | {"nest"}) == {"mimic_mortality_labels"}
    # what an arrow of the graph joins to the labels; the rest reads them too and is stale by its step's key
    below = {f"mimic_mortality_{name}" for name in ("leak_audit", "nest", "lightgbm")}
    assert rerun.status() == {StaleStatus.FRESH: rerun.chain - below, StaleStatus.STALE: below}


@pytest.mark.long
def test_page_of_one_cohort_is_made_alone(rerun: RerunFolder):
    page = rerun.data / "mimic" / "reports" / "mimic_mortality" / "report.html"
    old_page = page.read_bytes()
    page.unlink()

    assert rerun.materialize({"mimic_mortality_report"}) == {"mimic_mortality_report"}
    assert page.read_bytes() == old_page


def test_every_file_of_a_run_belongs_to_one_step(full_run: Run):
    """Otherwise a lost file would not be made again, and a changed file would not be noticed."""
    root = full_run.data / "mimic"
    outputs = [
        root / output
        for card in (root / "cards").iterdir()
        for output in json.loads(card.read_text())["outputs"]
    ]
    for file in root.rglob("*"):
        if file.is_file() and file.parent != root / "cards":
            owners = [output for output in outputs if file == output or file.is_relative_to(output)]
            assert len(owners) == 1, file


@pytest.mark.long
def test_removals_file_exists_only_with_all_yardsticks(rerun: RerunFolder, monkeypatch: pytest.MonkeyPatch):
    models = rerun.data / "mimic" / "models"
    asset, file = "mimic_mortality_yardsticks", models / "mimic_mortality_yardsticks" / "removals.json"
    assert (models / "mimic_mortality_nest" / "config.json").exists(), "it was not trained"
    assert not file.exists()
    with monkeypatch.context() as patch:
        patch.setitem(FULL_RUN_SETTINGS, "yardsticks", "all")
        assert rerun.materialize({asset}) == {asset}
        # counts under eleven are suppressed, and so few test patients have a diagnosis or an earlier stay
        assert [removal["name"] for removal in json.loads(file.read_text())["removals"]] == [
            "MED",
            "LAB",
            "last set",
        ]
        assert rerun.materialize({asset}) == set()
    assert rerun.materialize({asset}) == {asset}
    assert not file.exists()
