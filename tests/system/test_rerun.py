"""Only what changed is done again, and Dagster's own word for it agrees."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest

from assets import cohorts
from assets.definitions import build
from assets.resources import Workspace
from schemas import settings
from schemas.cards import step_of
from schemas.rules import DataRules
from tests.support.commands import ROOT, SMALL, Run

ETL = {"raw", "subjects", "encounters", "events", "drug_lookup", "vocab", "seqset"}
COHORTS = [
    f"mimic_{name}"
    for name in ("mortality", "readmission", "readmission_any", "long_stay", "icd_chapter", "icd_category")
]
LABELS = {f"{cohort}_labels" for cohort in COHORTS}
MODELS = {"nest"} | {
    f"{cohort}_{model}" for cohort in COHORTS for model in ("leak_audit", "nest", "lightgbm", "yardsticks")
}
PAGES = {"report"} | {f"{cohort}_report" for cohort in COHORTS}
CHAIN = ETL | LABELS | MODELS | PAGES
OF_THE_WHOLE_RUN: dict[str, object] = {
    name.removeprefix("NEST_").lower(): int(value) for name, value in SMALL.items()
}


class Product:
    """A data folder and Dagster's record of it, on which steps are done again in this very process."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance) -> None:
        self.data, self.instance = folder / "data", instance
        self.cohorts = cohorts.COHORT_FOLDER

    def materialize(self, steps: set[str]) -> set[str]:
        """Materialize these steps and return those that did something."""
        assets = [asset for asset in build(self.cohorts).assets if isinstance(asset, dg.AssetsDefinition)]
        result = dg.materialize(
            assets,
            selection=[key for asset in assets for key in asset.keys if step(key) in steps],
            instance=self.instance,
            resources={
                "workspace": Workspace(data_dir=str(self.data), **OF_THE_WHOLE_RUN),
                "pipes": dg.PipesSubprocessClient(),
            },
        )
        told = {
            step(event.asset_key): event.step_materialization_data.materialization.metadata
            for event in result.get_asset_materialization_events()
        }
        assert set(told) == steps
        return {name for name, metadata in told.items() if "unchanged" not in metadata}

    def status(self) -> dict[StaleStatus, set[str]]:
        """Return the steps of the chain by what Dagster thinks of them."""
        graph = build(self.cohorts).get_repository_def().asset_graph
        resolver = CachingStaleStatusResolver(self.instance, graph, LoadingContextForTest(self.instance))
        found: dict[StaleStatus, set[str]] = {}
        for key in graph.get_all_asset_keys():
            if step(key) in CHAIN and key.to_user_string().startswith("mimic_"):
                found.setdefault(resolver.get_status(key), set()).add(step(key))
        return found

    def hashes(self) -> dict[str, str]:
        files = [path for path in self.data.rglob("*") if path.is_file()]
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def step(key: dg.AssetKey) -> str:
    return step_of(key.to_user_string(), "mimic")


@pytest.fixture
def product(full_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Product]:
    """What a whole run left, copied."""
    assert full_run.returncode == 0, full_run.output[-3000:]
    shutil.copytree(full_run.data, tmp_path / "data")
    shutil.copytree(full_run.storage, tmp_path / "dagster")
    monkeypatch.setenv("DAGSTER_NEST_STORAGE", str(tmp_path / "dagster"))
    with dg.DagsterInstance.from_config(str(ROOT)) as instance:
        yield Product(tmp_path, instance)


def test_the_same_input_config_and_code_do_nothing_again_and_dagster_shows_all_fresh(product: Product):
    before = product.hashes()
    assert product.materialize(CHAIN) == set()
    assert product.hashes() == before
    assert product.status() == {StaleStatus.FRESH: CHAIN}


@pytest.mark.long
def test_a_changed_cut_rule_redoes_the_vocabulary_and_what_hangs_on_it_and_not_the_extraction(
    product: Product, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(settings.PRESETS, "default", DataRules(top_labs=20))
    assert product.materialize(ETL | LABELS) == {"vocab", "seqset"}
    assert product.status() == {StaleStatus.FRESH: ETL | LABELS, StaleStatus.STALE: MODELS | PAGES}


def test_a_changed_cohort_file_redoes_its_own_labels_and_models_only(product: Product, tmp_path: Path):
    product.cohorts = tmp_path / "cohorts"
    shutil.copytree(cohorts.COHORT_FOLDER, product.cohorts)
    file = product.cohorts / "mimic_mortality.yaml"
    file.write_text(file.read_text().replace("24 hours", "12 hours"))

    assert product.status()[StaleStatus.STALE] == {"mimic_mortality_labels"}
    assert product.materialize(ETL | LABELS | {"nest"}) == {"mimic_mortality_labels"}
    below = {
        f"mimic_mortality_{what}" for what in ("leak_audit", "nest", "lightgbm", "yardsticks", "report")
    } | {"report"}
    assert product.status() == {StaleStatus.FRESH: CHAIN - below, StaleStatus.STALE: below}


@pytest.mark.long
def test_the_page_of_one_cohort_is_made_alone(product: Product):
    page = product.data / "mimic" / "reports" / "mimic_mortality" / "report.html"
    before = page.read_bytes()
    page.unlink()

    assert product.materialize({"mimic_mortality_report"}) == {"mimic_mortality_report"}
    assert page.read_bytes() == before


def test_every_file_of_a_run_is_the_output_of_one_step(full_run: Run):
    """Else it would neither be made again when it is lost nor be seen to have changed."""
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
def test_what_nest_loses_comes_with_all_yardsticks_and_goes_with_them(
    product: Product, monkeypatch: pytest.MonkeyPatch
):
    models = product.data / "mimic" / "models"
    cohort = next(name for name in COHORTS if (models / f"{name}_nest" / "config.json").exists())
    asset, file = f"{cohort}_yardsticks", models / f"{cohort}_yardsticks" / "removals.json"
    assert not file.exists()
    with monkeypatch.context() as patch:
        patch.setitem(OF_THE_WHOLE_RUN, "yardsticks", "all")
        assert product.materialize({asset}) == {asset}
        # of under eleven test patients nothing is shown, and so few have a diagnosis or an earlier stay here
        assert [one["name"] for one in json.loads(file.read_text())["removals"]] == ["MED", "LAB", "last set"]
        assert product.materialize({asset}) == set()
    assert product.materialize({asset}) == {asset}
    assert not file.exists()
