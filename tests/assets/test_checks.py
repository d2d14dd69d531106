"""A check that fails must stop what hangs below, and must be seen."""

import shutil
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from assets.checks import card_checks, leak_check, source_checks, split_check, table_checks
from assets.cohorts import COHORT_FOLDER
from assets.definitions import build
from assets.resources import Workspace
from assets.sources.common import source_assets
from nest_model.data import leak_guard
from nest_model.data.history import select
from schemas.cards import StepCard, files_of
from schemas.contract import write_table
from schemas.expectations import TABLE_SUITES
from schemas.tables.events import SUBJECTS
from tests.support.factories.shards import DAY_US, write_shards
from tests.support.tiny_layout import COHORT, tables, write

mimic_encounters = next(asset for asset in source_assets("mimic") if asset.key.path == ["mimic_encounters"])
mimic_raw = next(asset for asset in source_assets("mimic") if asset.key.path == ["mimic_raw"])
mimic_subjects = next(asset for asset in source_assets("mimic") if asset.key.path == ["mimic_subjects"])


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(data_dir=str(tmp_path), synthetic_patients=30)


@pytest.fixture(scope="module")
def extracted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of 30 synthetic patients, to the subjects and encounters."""
    folder = tmp_path_factory.mktemp("extracted")
    workspace = Workspace(data_dir=str(folder), synthetic_patients=30)
    result = dg.materialize([mimic_raw, mimic_subjects, mimic_encounters], resources={"workspace": workspace})
    assert result.success
    return folder


@pytest.fixture
def subjects(extracted: Path, workspace: Workspace) -> Path:
    """The table of subjects of a copy."""
    shutil.copytree(extracted, workspace.data_dir, dirs_exist_ok=True)
    return workspace.layout("mimic").subjects


def evaluations(check: dg.AssetChecksDefinition, workspace: Workspace) -> dict[str, dg.AssetCheckEvaluation]:
    """Run a check alone, on whatever lies in the data folder."""
    job = dg.Definitions(
        assets=[mimic_subjects, mimic_raw, mimic_encounters, dg.AssetSpec(f"{COHORT}_labels")],
        asset_checks=[check],
        jobs=[dg.define_asset_job("checks", dg.AssetSelection.checks(check))],
        resources={"workspace": workspace},
    ).resolve_job_def("checks")
    result = job.execute_in_process(raise_on_error=False)
    return {found.check_name: found for found in result.get_asset_check_evaluations()}


def test_a_check_waits_for_every_table_it_looks_at():
    """Else encounters are held against subjects that are not there yet, or against those of the run before."""
    deps = {
        spec.asset_key.to_user_string(): {dep.asset_key.to_user_string() for dep in spec.additional_deps}
        for check in source_checks("mimic")
        for spec in check.check_specs
        if spec.name == "contract"
    }
    assert deps["mimic_encounters"] == {"mimic_subjects"}
    assert deps["mimic_seqset"] == {
        "mimic_vocab",
        "mimic_encounters",
        "mimic_events",
        "mimic_drug_lookup",
    }


def test_a_table_as_promised_passes_all_its_checks(subjects: Path, workspace: Workspace):
    found = evaluations(
        table_checks("mimic", "mimic_subjects", "subjects", TABLE_SUITES["subjects"]), workspace
    )
    assert set(found) == {"contract", "plausible", "rows_reconcile", "nothing_odd"}
    assert all(evaluation.passed for evaluation in found.values())


def written(table: pa.Table, subjects: Path) -> None:
    """Write a table as a step with a fault would: its card stands for it."""
    write_table(table, subjects, SUBJECTS, made_by="test")
    cards = subjects.parent / "cards"
    card = StepCard.read(cards, "subjects")
    card.sealed(card.files | files_of([subjects], subjects.parent)).write(cards)


def test_a_subject_twice_fails_the_contract_with_a_count_and_no_id(subjects: Path, workspace: Workspace):
    table = pq.read_table(subjects)
    written(pa.concat_tables([table, table.slice(0, 1)]), subjects)

    found = evaluations(
        table_checks("mimic", "mimic_subjects", "subjects", TABLE_SUITES["subjects"]), workspace
    )

    contract = found["contract"]
    assert not contract.passed
    assert contract.severity is dg.AssetCheckSeverity.ERROR
    assert contract.blocking
    assert "subject_id" in contract.description
    assert str(table["subject_id"][0]) not in str(contract)


def test_a_row_nobody_can_account_for_is_an_error_and_stops_what_hangs_below(
    subjects: Path, workspace: Workspace
):
    cards = workspace.layout("mimic").cards
    card = StepCard.read(cards, "subjects")
    flow = card.flows["patients"]
    lost = flow.model_copy(update={"source_rows": flow.source_rows + 1})
    card.model_copy(update={"flows": {"patients": lost}}).write(cards)

    found = evaluations(
        table_checks("mimic", "mimic_subjects", "subjects", TABLE_SUITES["subjects"]), workspace
    )

    reconciled = found["rows_reconcile"]
    assert not reconciled.passed
    assert reconciled.severity is dg.AssetCheckSeverity.ERROR
    assert reconciled.blocking
    assert "rows of patients do not add up" in reconciled.description
    assert found["contract"].passed


def test_what_is_odd_and_no_error_is_told_and_stops_nothing(subjects: Path, workspace: Workspace):
    cards = workspace.layout("mimic").cards
    StepCard.read(cards, "subjects").model_copy(update={"warnings": ["Odd."]}).write(cards)

    found = evaluations(card_checks("mimic", "mimic_subjects", "subjects"), workspace)

    assert found["rows_reconcile"].passed
    assert not found["nothing_odd"].passed
    assert found["nothing_odd"].severity is dg.AssetCheckSeverity.WARN
    assert "Odd." in found["nothing_odd"].description


def test_what_should_hold_of_nearly_every_row_and_does_not_is_a_warning_and_stops_nothing(
    subjects: Path, workspace: Workspace
):
    table = pq.read_table(subjects)
    place = table.schema.get_field_index("sex")
    of_no_sex = table.set_column(place, table.schema.field(place), pa.nulls(len(table), pa.string()))
    written(of_no_sex, subjects)

    found = evaluations(
        table_checks("mimic", "mimic_subjects", "subjects", TABLE_SUITES["subjects"]), workspace
    )

    assert found["contract"].passed
    plausible = found["plausible"]
    assert not plausible.passed
    assert plausible.severity is dg.AssetCheckSeverity.WARN
    assert not plausible.blocking
    assert "sex is given" in plausible.description


def test_a_feature_known_only_after_its_prediction_is_an_error_and_stops_the_models(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
):
    """No table can bring it about, only a fault of the selector's."""
    rows = tables()
    layout = write(rows, workspace.layout("mimic").root)
    (layout.seqset / "shard-0.parquet").unlink()
    write_shards(layout.seqset, rows["seqset"])
    name = "no_feature_after_prediction"
    assert evaluations(leak_check("mimic", COHORT), workspace)[name].passed

    def late(seqsets, features, subject_id, encounter_id, predict_at_us):
        return select(seqsets, features, subject_id, encounter_id, predict_at_us + 2 * DAY_US)

    monkeypatch.setattr(leak_guard, "select", late)
    found = evaluations(leak_check("mimic", COHORT), workspace)[name]

    assert not found.passed
    assert found.severity is dg.AssetCheckSeverity.ERROR
    assert found.blocking
    assert found.description == f"{len(rows['labels'])} predictions would see what came later."


def test_every_step_with_a_flow_of_rows_has_the_check_that_it_adds_up():
    """Of the sources' chains and of the dataset that is written; a fetched file has no rows yet."""
    definitions = build(COHORT_FOLDER)
    checked = {
        key.asset_key.to_user_string()
        for check in definitions.asset_checks
        for key in check.check_keys
        if key.name == "rows_reconcile"
    }
    grouped = {
        spec.key.to_user_string()
        for asset in definitions.assets
        for spec in asset.specs
        if spec.group_name and spec.group_name.endswith(("_etl", "_cohorts", "mimic_meds"))
    }

    assert grouped - checked == set()


def test_a_test_patient_in_the_training_of_the_encoder_is_an_error(subjects: Path, workspace: Workspace):
    assert evaluations(split_check("mimic"), workspace)["no_test_subject_was_trained_on"].passed
    table = pq.read_table(subjects)
    assert pc.any(pc.equal(table["split"], "test")).as_py(), "without a test patient nothing is tested"
    place = table.schema.get_field_index("pretrain_split")
    everybody = table.set_column(place, table.schema.field(place), pa.array(["train"] * len(table)))
    written(everybody, subjects)

    found = evaluations(split_check("mimic"), workspace)["no_test_subject_was_trained_on"]

    assert not found.passed
    assert found.blocking
