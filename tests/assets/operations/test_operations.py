"""The sensor asks for a run once the input has changed and settled; new patients are scored and compared."""

import gzip
import os
import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path

import dagster as dg
import pytest

from assets.definitions import scores_new_patients
from assets.operations.input_sensor import input_sensor
from assets.operations.scoring import new_shards, scores_asset, scoring_definitions
from pipelines.sources.mimic.tables import TABLES
from pipelines.synthetic.mimic.write import write_mimic
from tests.support.commands import ROOT, Run, run


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return a function that lets the sensor look once, and returns how many runs Dagster begins: one for each key."""
    hosp = tmp_path / "hospital"
    write_mimic(hosp, tmp_path / "planted", patients=12, tokens_per_set_median=20, seed=1)
    for name, value in (("DATA", tmp_path / "data"), ("MIMIC", hosp), ("VOCAB", hosp / "vocab")):
        monkeypatch.setenv(f"NEST_{name}_DIR", str(value))
    cursor: list[str | None] = [None]
    keys: set[str | None] = set()

    def once() -> int:
        with dg.DagsterInstance.ephemeral() as instance:
            context = dg.build_sensor_context(instance=instance, cursor=cursor[0])
            result = input_sensor("mimic").evaluate_tick(context)
        cursor[0] = result.cursor or cursor[0]
        requests = [request for request in result.run_requests or [] if request.run_key not in keys]
        keys.update({request.run_key for request in requests} - {None})
        return len(requests)

    return once


def test_scores_come_after_the_vocabulary_and_the_model_that_they_use():
    scores = scores_asset("mimic_mortality")
    assert new_shards.asset_deps[new_shards.key] == {dg.AssetKey("mimic_vocab")}
    assert scores.asset_deps[scores.key] == {
        dg.AssetKey("mimic_new_seqset"),
        dg.AssetKey("mimic_mortality_nest"),
    }


def test_sensor_asks_for_a_run_once_where_the_input_changed_and_settled(look, tmp_path):
    assert [look() for _ in range(3)] == [0, 1, 0]
    os.utime(tmp_path / "hospital" / "hosp" / "admissions.csv.gz", (0, 0))
    assert [look() for _ in range(3)] == [0, 1, 0]


def test_sensor_asks_for_a_run_where_the_input_is_again_as_it_once_was(look, tmp_path, monkeypatch):
    shutil.copytree(tmp_path / "hospital", tmp_path / "next day")
    current = tmp_path / "current"
    monkeypatch.setenv("NEST_MIMIC_DIR", str(current))
    runs = []
    for day in ("hospital", "next day", "hospital"):
        current.unlink(missing_ok=True)
        current.symlink_to(tmp_path / day)
        runs.append([look(), look()])
    assert runs == [[0, 1]] * 3


def test_sensor_of_a_synthetic_input_never_asks_for_a_run(look, monkeypatch):
    monkeypatch.delenv("NEST_MIMIC_DIR")
    assert [look() for _ in range(2)] == [0, 0]


def test_sensor_of_a_database_says_that_it_watches_nothing(monkeypatch):
    monkeypatch.setenv("NEST_PCORNET_DATABASE", "postgres")
    with dg.DagsterInstance.ephemeral() as instance:
        result = input_sensor("pcornet").evaluate_tick(dg.build_sensor_context(instance=instance))
    assert not result.run_requests
    assert "lies in a database, where a change is not seen" in result.skip_message


def test_sensors_and_the_schedule_are_off():
    automations = [input_sensor("mimic"), *scoring_definitions(["mimic_mortality"]).schedules]
    assert len(automations) == 2
    assert {automation.default_status.value for automation in automations} == {"STOPPED"}


def test_scoring_exists_only_by_its_setting(monkeypatch):
    assert not scores_new_patients()
    monkeypatch.setenv("NEST_NEW_MIMIC_DIR", "/extract/tonight")
    assert scores_new_patients()


@pytest.mark.long
def test_new_patients_are_scored_and_compared_with_those_before(
    full_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shutil.copytree(full_run.data, tmp_path / "data")
    write_mimic(tmp_path / "new", tmp_path / "planted", patients=60, tokens_per_set_median=40, seed=9)
    command = ("dagster", "job", "execute", "-j", "mimic_scores")
    scoring = run(*command, folder=tmp_path, NEST_NEW_MIMIC_DIR=str(tmp_path / "new"))
    assert scoring.returncode == 0, scoring.output
    assert list((scoring.data / "mimic" / "new" / "scores" / "mimic_mortality").glob("*.parquet"))
    monkeypatch.setenv("DAGSTER_NEST_STORAGE", str(scoring.storage))
    with dg.DagsterInstance.from_config(str(ROOT)) as instance:
        event = instance.get_latest_materialization_event(dg.AssetKey("mimic_monitor"))
    metadata = event.asset_materialization.metadata
    assert metadata["new patients"].value == "60"
    assert 0 < metadata["token_divergence_bits"].value < 0.5
    assert f"| mimic_readmission | 60 | {date.today().isoformat()} | 0 |" in metadata["scores"].value


@pytest.mark.long
def test_a_night_without_admissions_ends_well_and_scores_nobody(full_run: Run, tmp_path: Path):
    shutil.copytree(full_run.data, tmp_path / "data")
    write_mimic(tmp_path / "new", tmp_path / "planted", patients=12, tokens_per_set_median=40, seed=9)
    (tmp_path / "new" / "rows.json").unlink()
    for table in TABLES:
        keep_header(tmp_path / "new" / "hosp" / f"{table}.csv.gz")
    command = ("dagster", "job", "execute", "-j", "mimic_scores")
    scoring = run(*command, folder=tmp_path, NEST_NEW_MIMIC_DIR=str(tmp_path / "new"))
    assert scoring.returncode == 0, scoring.output
    assert (
        "mimic_mortality_scores: 0 patients scored: none of the new patients has an admission" in scoring.log
    )
    assert not list((scoring.data / "mimic" / "new").rglob("scores/*/*.parquet"))


def keep_header(file: Path) -> None:
    with gzip.open(file, "rt") as table:
        header = table.readline()
    with gzip.open(file, "wt") as table:
        table.write(header)
