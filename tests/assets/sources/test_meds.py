"""The job on a MEDS dataset, from raw files to a report, as a user runs it."""

from datetime import timedelta
from typing import NamedTuple

import dagster as dg
import polars as pl
import pytest

from assets.resources import Workspace
from assets.sources.common import source_assets, steps_of
from assets.sources.mimic_meds import mimic_meds
from pipelines.sources.meds.export import write_meds
from pipelines.sources.mimic.steps import find_source
from pipelines.synthetic.mimic.write import write_mimic
from schemas.cards import StepCard
from schemas.errors import InputError
from schemas.layout import Layout
from schemas.rules import PRESETS
from tests.pipelines.sources.meds.test_any_meds import DAY, TYPES, dataset
from tests.support.commands import run
from tests.support.compare import run_all
from tests.support.meds_tables import make_layout

MEDS_ASSETS = source_assets("meds")
meds_events = next(asset for asset in source_assets("meds") if asset.key.path == ["meds_events"])
meds_raw = next(asset for asset in source_assets("meds") if asset.key.path == ["meds_raw"])
MIMIC_ASSETS = source_assets("mimic")


@pytest.mark.long
def test_meds_full_runs_on_any_dataset_to_a_report(tmp_path):
    raw, mimic_layout, rules = tmp_path / "raw", Layout(tmp_path / "mimic"), PRESETS["default"]
    write_mimic(raw, tmp_path / "planted.parquet", patients=120, seed=1, tokens_per_set_median=40)
    run_all(find_source(raw, raw / "vocab"), mimic_layout, rules)
    write_meds(mimic_layout)
    result = run(
        "dagster", "job", "execute", "-j", "meds_full", folder=tmp_path, NEST_MEDS_DIR=str(mimic_layout.meds)
    )
    assert result.returncode == 0, result.output
    layout = Layout(result.data / "meds")
    assert (
        StepCard.read(layout.cards, "seqset").counts["sets"]
        == pl.read_parquet(mimic_layout.encounters).height
    )
    assert pl.read_parquet(layout.labels("meds_mortality")).height
    assert (layout.model("meds_nest") / "model.safetensors").exists()
    assert "meds_mortality" in (layout.report("meds") / "report.html").read_text()


def test_meds_events_show_a_picture_of_events_by_kind(tmp_path):
    mimic_layout = make_layout(tmp_path / "mimic", PRESETS["default"])
    write_meds(mimic_layout)
    workspace = Workspace(data_dir=str(tmp_path / "data"), meds_dir=str(mimic_layout.meds))
    steps = MEDS_ASSETS[: MEDS_ASSETS.index(meds_events) + 1]
    result = dg.materialize(steps, resources={"workspace": workspace}, selection=steps)
    (event,) = result.asset_materializations_for_node("meds_events")
    assert "Events by kind" in event.metadata


class Export(NamedTuple):
    """A run from the raw tables to `meds_raw`: its result, what `mimic_meds` logged, and the folder of MIMIC-IV."""

    result: dg.ExecuteInProcessResult
    messages: list[str]
    mimic: Layout


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Export:
    folder = tmp_path_factory.mktemp("export")
    workspace = Workspace(data_dir=str(folder), synthetic_patients=20)
    read = [
        asset for asset in MIMIC_ASSETS if asset.key.to_user_string() not in ("mimic_vocab", "mimic_seqset")
    ]
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            [*read, mimic_meds, meds_raw], instance=instance, resources={"workspace": workspace}
        )
        lines = instance.all_logs(result.run_id)
    messages = [line.user_message for line in lines if line.step_key == "mimic_meds"]
    return Export(result, messages, Layout(folder / "mimic"))


def test_exported_dataset_logs_the_number_of_rows(export: Export):
    rows = StepCard.read(export.mimic.cards, "meds").counts["rows"]
    assert f"{rows:,} rows under meds_data/1" in export.messages


def test_meds_raw_depends_on_the_data_version_of_mimic_meds(export: Export):
    meds_tags, raw_tags = (
        export.result.asset_materializations_for_node(name)[0].tags for name in ("mimic_meds", "meds_raw")
    )
    assert raw_tags["dagster/input_data_version/mimic_meds"] == meds_tags["dagster/data_version"]


def test_other_dataset_needs_no_mimic_meds(tmp_path):
    root = dataset(tmp_path / "set", [(1, DAY, "A", None, 7)])
    workspace = Workspace(data_dir=str(tmp_path / "data"), meds_dir=str(root))
    assert materialize_up_to(workspace, meds_raw) == {"meds_raw"}
    assert materialize_up_to(workspace, meds_raw) == set()


def test_missing_meds_dataset_names_the_setting(tmp_path):
    message = "Set NEST_MEDS_DIR to the root of a MEDS dataset, or materialize mimic_meds first"
    with pytest.raises(InputError, match=message):
        steps_of(Workspace(data_dir=str(tmp_path)), "meds").raw().make()


def materialize_up_to(workspace: Workspace, last: dg.AssetsDefinition) -> set[str]:
    """Materialize the steps from `meds_raw` to `last` and return those that ran."""
    steps = MEDS_ASSETS[: MEDS_ASSETS.index(last) + 1]
    result = dg.materialize(steps, resources={"workspace": workspace})
    return {
        event.asset_key.to_user_string()
        for event in result.get_asset_materialization_events()
        if "unchanged" not in event.materialization.metadata
    }


def test_changed_encounter_column_reassigns_the_events(tmp_path):
    rows = [
        (1, DAY + timedelta(hours=at), code, None, encounter, 3 - encounter)
        for at, code, encounter in ((0, "A", 1), (0, "B", 2), (5, "C", 1), (10, "D", 1), (10, "E", 2))
    ]
    root = dataset(tmp_path / "set", rows, columns=(*TYPES, "visit_id"))

    def workspace(column: str) -> Workspace:
        return Workspace(data_dir=str(tmp_path / "data"), meds_dir=str(root), meds_encounter_column=column)

    def placed() -> dict[str, int]:
        events = pl.read_parquet(tmp_path / "data" / "meds" / "events" / "*.parquet")
        return dict(events.select("code", "encounter_id").iter_rows())

    materialize_up_to(workspace("hadm_id"), meds_events)
    assert placed() == {"A": 1, "B": 2, "C": 1, "D": 1, "E": 2}
    assert materialize_up_to(workspace("visit_id"), meds_events) >= {"meds_events"}
    assert placed() == {"A": 2, "B": 1, "C": 2, "D": 2, "E": 1}
    assert materialize_up_to(workspace("visit_id"), meds_events) == set()
