"""Failing checks block downstream assets and are visible."""

import shutil
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from assets.checks import card_checks, cohort_checks, leak_check, source_checks, split_check, table_checks
from assets.cohorts import COHORT_FOLDER
from assets.definitions import build
from assets.resources import Workspace
from assets.sources.common import source_assets
from nest_model.data import leak_guard
from nest_model.data.history import select
from schemas.cards import StepCard, files_of
from schemas.contract import write_table
from schemas.expectations import TABLE_SUITES, labels
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
def extracted_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the data folder of 30 synthetic patients, up to subjects and encounters."""
    folder = tmp_path_factory.mktemp("extracted")
    workspace = Workspace(data_dir=str(folder), synthetic_patients=30)
    result = dg.materialize([mimic_raw, mimic_subjects, mimic_encounters], resources={"workspace": workspace})
    assert result.success
    return folder


@pytest.fixture
def subjects(extracted_folder: Path, workspace: Workspace) -> Path:
    """Return the path of the subjects table in a copy of the data folder."""
    shutil.copytree(extracted_folder, workspace.data_dir, dirs_exist_ok=True)
    return workspace.layout("mimic").subjects


def evaluations(
    check: dg.AssetChecksDefinition, workspace: Workspace, *names: str
) -> dict[str, dg.AssetCheckEvaluation]:
    """Run checks alone on the files of the data folder: those of these names, or all of the definition."""
    keys = [key for key in check.check_keys if not names or key.name in names]
    job = dg.Definitions(
        assets=[mimic_subjects, mimic_raw, mimic_encounters, dg.AssetSpec(f"{COHORT}_labels")],
        asset_checks=[check],
        jobs=[dg.define_asset_job("checks", dg.AssetSelection.checks(*keys))],
        resources={"workspace": workspace},
    ).resolve_job_def("checks")
    result = job.execute_in_process(raise_on_error=False)
    return {evaluation.check_name: evaluation for evaluation in result.get_asset_check_evaluations()}


def test_check_waits_for_every_table_read_by_the_suite():
    """Otherwise encounters could be compared with subjects that do not exist yet, or with those of an earlier run."""
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


def test_check_of_labels_waits_for_every_table_read_by_their_suite(tmp_path: Path):
    contract, *_ = [
        spec
        for check in cohort_checks("mimic", COHORT)
        for spec in check.check_specs
        if spec.name == "contract"
    ]
    layout = write(tables(), tmp_path / "mimic")
    suite_tables = {f"mimic_{table.name}" for table in labels(layout, COHORT).tables[1:]}
    assert {dep.asset_key.to_user_string() for dep in contract.additional_deps} == suite_tables


def test_valid_table_passes_all_checks(subjects: Path, workspace: Workspace):
    results = evaluations(
        table_checks("mimic", "mimic_subjects", "subjects", TABLE_SUITES["subjects"]), workspace
    )
    assert set(results) == {"contract", "plausible", "rows_reconcile", "nothing_odd"}
    assert all(evaluation.passed for evaluation in results.values())


def test_one_check_of_a_table_is_executed_alone(subjects: Path, workspace: Workspace):
    check = table_checks("mimic", "mimic_subjects", "subjects", TABLE_SUITES["subjects"])
    assert set(evaluations(check, workspace, "plausible")) == {"plausible"}


def write_sealed(table: pa.Table, subjects: Path) -> None:
    """Write a table as a faulty step would, with a card that matches it."""
    write_table(table, subjects, SUBJECTS, made_by="test")
    cards = subjects.parent / "cards"
    card = StepCard.read(cards, "subjects")
    card.sealed(card.files | files_of([subjects], subjects.parent)).write(cards)


def test_contract_check_counts_duplicate_subjects_without_an_id(subjects: Path, workspace: Workspace):
    table = pq.read_table(subjects)
    write_sealed(pa.concat_tables([table, table.slice(0, 1)]), subjects)

    results = evaluations(
        table_checks("mimic", "mimic_subjects", "subjects", TABLE_SUITES["subjects"]), workspace
    )

    contract = results["contract"]
    assert not contract.passed
    assert contract.severity is dg.AssetCheckSeverity.ERROR
    assert contract.blocking
    assert "subject_id" in contract.description
    assert str(table["subject_id"][0]) not in str(contract)


@pytest.mark.parametrize(("is_synthetic", "rows"), [(True, "2 rows"), (False, "< 11 rows")])
def test_check_withholds_a_small_count_unless_the_patients_are_synthetic(
    is_synthetic: bool, rows: str, subjects: Path, workspace: Workspace
):
    table = pq.read_table(subjects)
    write_sealed(pa.concat_tables([table, table.slice(0, 1)]), subjects)
    cards = workspace.layout("mimic").cards
    StepCard.read(cards, "subjects").model_copy(update={"synthetic": is_synthetic}).write(cards)

    check = table_checks("mimic", "mimic_subjects", "subjects", TABLE_SUITES["subjects"])
    description = evaluations(check, workspace)["contract"].description
    assert f"“subject id is unique” does not hold in {rows} (" in description


def test_unaccounted_row_is_a_blocking_error(subjects: Path, workspace: Workspace):
    cards = workspace.layout("mimic").cards
    card = StepCard.read(cards, "subjects")
    flow = card.flows["patients"]
    bad_flow = flow.model_copy(update={"source_rows": flow.source_rows + 1})
    card.model_copy(update={"flows": {"patients": bad_flow}}).write(cards)

    results = evaluations(
        table_checks("mimic", "mimic_subjects", "subjects", TABLE_SUITES["subjects"]), workspace
    )

    check = results["rows_reconcile"]
    assert not check.passed
    assert check.severity is dg.AssetCheckSeverity.ERROR
    assert check.blocking
    assert "rows of patients do not add up" in check.description
    assert results["contract"].passed


def test_card_warning_is_reported_and_blocks_nothing(subjects: Path, workspace: Workspace):
    cards = workspace.layout("mimic").cards
    StepCard.read(cards, "subjects").model_copy(update={"warnings": ["Odd."]}).write(cards)

    results = evaluations(card_checks("mimic", "mimic_subjects", "subjects"), workspace)

    assert results["rows_reconcile"].passed
    assert not results["nothing_odd"].passed
    assert results["nothing_odd"].severity is dg.AssetCheckSeverity.WARN
    assert "Odd." in results["nothing_odd"].description


def test_implausible_column_is_a_warning_and_blocks_nothing(subjects: Path, workspace: Workspace):
    table = pq.read_table(subjects)
    place = table.schema.get_field_index("sex")
    of_no_sex = table.set_column(place, table.schema.field(place), pa.nulls(len(table), pa.string()))
    write_sealed(of_no_sex, subjects)

    results = evaluations(
        table_checks("mimic", "mimic_subjects", "subjects", TABLE_SUITES["subjects"]), workspace
    )

    assert results["contract"].passed
    plausible = results["plausible"]
    assert not plausible.passed
    assert plausible.severity is dg.AssetCheckSeverity.WARN
    assert not plausible.blocking
    assert "sex is given" in plausible.description


def test_feature_known_after_the_prediction_is_a_blocking_error(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
):
    """Only a faulty selector can cause this, not a table."""
    rows = tables()
    layout = write(rows, workspace.layout("mimic").root)
    (layout.seqset / "shard-0.parquet").unlink()
    write_shards(layout.seqset, rows["seqset"])
    for step in ("seqset", f"{COHORT}_labels"):
        StepCard(step=step, contract="any/1").write(layout.cards)
    name = "no_feature_after_prediction"
    assert evaluations(leak_check("mimic", COHORT), workspace)[name].passed

    monkeypatch.setattr(leak_guard, "select", select_late)
    check = evaluations(leak_check("mimic", COHORT), workspace)[name]

    assert not check.passed
    assert check.severity is dg.AssetCheckSeverity.ERROR
    assert check.blocking
    assert check.description == f"{len(rows['labels'])} predictions would use events known only later."


def select_late(seqsets, features, subject_id, encounter_id, predict_at_us):
    return select(seqsets, features, subject_id, encounter_id, predict_at_us + 2 * DAY_US)


@pytest.mark.parametrize(
    ("synthetic_steps", "count"),
    [
        (("seqset", f"{COHORT}_labels"), "3"),
        (("seqset",), "< 11"),
        ((f"{COHORT}_labels",), "< 11"),
    ],
    ids=["both", "shards", "labels"],
)
def test_few_leaks_are_counted_only_if_shards_and_labels_are_synthetic(
    synthetic_steps: tuple[str, ...], count: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
):
    rows = tables()
    rows["labels"] = rows["labels"][:3]
    layout = write(rows, workspace.layout("mimic").root)
    (layout.seqset / "shard-0.parquet").unlink()
    write_shards(layout.seqset, rows["seqset"])
    for step in ("seqset", f"{COHORT}_labels"):
        StepCard(step=step, contract="any/1", synthetic=step in synthetic_steps).write(layout.cards)
    monkeypatch.setattr(leak_guard, "select", select_late)

    check = evaluations(leak_check("mimic", COHORT), workspace)["no_feature_after_prediction"]

    assert check.description == f"{count} predictions would use events known only later."


def test_every_table_asset_has_the_rows_reconcile_check():
    """This holds for the tables of every source and the exported dataset; fetched files have no rows yet."""
    definitions = build(COHORT_FOLDER)
    checked_assets = {
        key.asset_key.to_user_string()
        for check in definitions.asset_checks
        for key in check.check_keys
        if key.name == "rows_reconcile"
    }
    table_assets = {
        spec.key.to_user_string()
        for asset in definitions.assets
        for spec in asset.specs
        if spec.group_name and spec.group_name.endswith(("_etl", "_cohorts", "mimic_meds"))
    }

    assert table_assets - checked_assets == set()


def test_test_patient_in_the_pretraining_split_is_a_blocking_error(subjects: Path, workspace: Workspace):
    assert evaluations(split_check("mimic"), workspace)["no_test_subject_was_trained_on"].passed
    table = pq.read_table(subjects)
    assert pc.any(pc.equal(table["split"], "test")).as_py(), "the split check needs a test patient"
    place = table.schema.get_field_index("pretrain_split")
    everybody = table.set_column(place, table.schema.field(place), pa.array(["train"] * len(table)))
    write_sealed(everybody, subjects)

    check = evaluations(split_check("mimic"), workspace)["no_test_subject_was_trained_on"]

    assert not check.passed
    assert check.blocking
