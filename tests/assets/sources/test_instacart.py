"""Instacart in Dagster: the contracts, checks and cards of every source, and the next-basket score."""

import json
from pathlib import Path

import dagster as dg
import pytest

from assets.checks import source_checks
from assets.definitions import defs
from assets.resources import Workspace
from assets.sources.common import source_assets
from nest_model.next_set.system import names as system_names
from schemas.expectations import INSTACART_SUITES
from tests.support.commands import Run, run
from tests.support.instacart_files import Order, write_shop

INSTACART_ASSETS = source_assets("instacart")
INSTACART_CHECKS = source_checks("instacart", INSTACART_SUITES)

ETL = [asset for asset in INSTACART_ASSETS if asset.group_names_by_key[asset.key] == "instacart_etl"]


def materialize(folder: Path, *, with_checks: bool = False, **settings: object) -> dg.ExecuteInProcessResult:
    """Run the steps up to the shards in this process, on a data folder."""
    workspace = Workspace(data_dir=str(folder), **settings)
    checks = INSTACART_CHECKS if with_checks else []
    return dg.materialize([*ETL, *checks], resources={"workspace": workspace}, raise_on_error=False)


def test_synthetic_shop_passes_every_check_up_to_the_shards(tmp_path: Path):
    result = materialize(tmp_path, with_checks=True, synthetic_users=800)
    assert result.success
    results = {
        (check.asset_key.to_user_string(), check.check_name): check.passed
        for check in result.get_asset_check_evaluations()
    }
    assert {asset for asset, name in results if name == "contract"} == {
        f"instacart_{table}" for table in INSTACART_SUITES
    }
    assert [key for key, is_passed in results.items() if not is_passed] == []


@pytest.mark.long  # every day an unchanged rerun of MIMIC-IV does nothing: tests/system/test_rerun.py
def test_second_run_of_instacart_changes_nothing(tmp_path: Path):
    for times in range(2):
        result = materialize(tmp_path, synthetic_users=40)
        assert result.success
        for asset in ETL:
            (event,) = result.asset_materializations_for_node(asset.key.to_user_string())
            assert ("unchanged" in event.metadata) == bool(times)


def test_user_s_instacart_files_are_read_in_place(tmp_path: Path):
    shop = {
        user: [Order(user, "prior", None, [1, 2]), Order(900 + user, "train", 3.0, [2])]
        for user in range(1, 31)
    }
    raw = write_shop(tmp_path / "mine", shop)
    result = materialize(tmp_path / "data", instacart_dir=str(raw))
    assert result.success
    assert not (tmp_path / "data" / "instacart" / "raw").exists()


def test_missing_instacart_file_is_one_message(tmp_path: Path):
    raw = write_shop(tmp_path / "mine", {1: [Order(1, "train", None, [1])]})
    (raw / "orders.csv").unlink()
    result = materialize(tmp_path / "data", instacart_dir=str(raw))
    failures = [event.step_failure_data.error for event in result.all_events if event.is_step_failure]
    assert not result.success
    assert "orders: no such file" in failures[0].message


def test_instacart_jobs_select_all_instacart_assets_and_no_other():
    repository = defs().get_repository_def()
    systems = [f"instacart_system_{system}" for system in system_names()]
    further = {dg.AssetKey([name]) for name in ("instacart_nest", "instacart_next_basket", *systems)}
    everything = {asset.key for asset in INSTACART_ASSETS} | further
    assert repository.get_job("instacart_full").asset_layer.executable_asset_keys == everything
    assert repository.get_job("instacart_etl").asset_layer.executable_asset_keys == {
        asset.key for asset in ETL
    }


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run `dagster job execute -j instacart_full` on 150 synthetic users."""
    folder = tmp_path_factory.mktemp("instacart_full")
    return run("dagster", "job", "execute", "-j", "instacart_full", folder=folder, NEST_SYNTHETIC_USERS="150")


@pytest.mark.long
def test_instacart_full_compares_every_system(full: Run):
    assert full.returncode == 0, full.output[-3000:]
    report = full.data / "instacart" / "reports" / "instacart_next_basket" / "last_visible"
    metrics = json.loads((report / "metrics.json").read_text())
    assert {row["name"] for row in metrics["rows"] if not row["is_filled"]} == set(system_names())
    assert all(0 < row["scores"]["ndcg"]["value"] < 1 for row in metrics["rows"])
    assert len(metrics["comparisons"]) == 5
    config = json.loads((full.data / "instacart" / "models" / "instacart_nest" / "config.json").read_text())
    assert config["model"]["set_position"] is None


@pytest.mark.long
def test_held_out_target_has_its_own_folder_and_trains_no_backbone_again(full: Run):
    weights = full.data / "instacart" / "models" / "instacart_nest" / "model.safetensors"
    old_mtime = weights.stat().st_mtime_ns
    second_run = run(
        "dagster", "job", "execute", "-j", "instacart_full",
        folder=full.data.parent, NEST_SYNTHETIC_USERS="150", NEST_INSTACART_TARGET="held_out",
    )  # fmt: skip
    assert second_run.returncode == 0, second_run.output[-3000:]
    reports = full.data / "instacart" / "reports" / "instacart_next_basket"
    for target in ("last_visible", "held_out"):
        assert json.loads((reports / target / "metrics.json").read_text())["target"] == target
        assert (full.data / "instacart" / "next_baskets" / target / "blend" / "rankings.parquet").exists()
    assert weights.stat().st_mtime_ns == old_mtime
