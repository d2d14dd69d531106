"""What a person finds in the UI: every asset told, owned and checked."""

import dagster as dg
import pytest

from assets.cohorts import read_cohorts, unreadable
from assets.definitions import defs
from assets.jobs import JOBS

REPOSITORY = defs().get_repository_def()
SPECS = list(REPOSITORY.asset_graph.asset_nodes)
COHORTS = [
    "mimic_mortality", "mimic_readmission", "mimic_long_stay", "mimic_icd_chapter", "mimic_icd_category"
]  # fmt: skip


@pytest.mark.parametrize("node", SPECS, ids=lambda node: node.key.to_user_string())
def test_every_asset_has_a_description_a_group_a_kind_and_an_owner(node):
    assert node.description
    assert node.group_name != "default"
    assert node.kinds
    assert node.owners


def test_the_chain_has_the_names_the_field_was_promised():
    names = {node.key.to_user_string() for node in SPECS}
    tables = {"raw", "subjects", "encounters", "events", "drug_lookup", "vocab", "seqset", "nest", "report"}
    per_cohort = {f"{cohort}_{what}" for cohort in COHORTS for what in ("labels", "nest", "lightgbm")}
    assert names == {f"mimic_{table}" for table in tables} | per_cohort


def test_the_jobs_are_the_whole_chain_and_its_stretches():
    assert {job.name for job in JOBS} == {"mimic_full", "mimic_etl", "mimic_pretrain", "mimic_finetune"}
    full = REPOSITORY.get_job("mimic_full").asset_layer.executable_asset_keys
    assert full == {node.key for node in SPECS}


def test_a_broken_cohort_file_shows_as_one_failing_asset_and_the_rest_loads(tmp_path):
    source = next(iter(sorted((read_cohorts.__globals__["FOLDER"]).glob("mimic_mortality.yaml"))))
    (tmp_path / "good.yaml").write_text(source.read_text())
    (tmp_path / "broken.yaml").write_text(source.read_text().replace("predict_at:", "predicts_at:"))

    good, bad = read_cohorts(tmp_path)

    assert [cohort.cohort for cohort in good] == ["mimic_mortality"]
    result = dg.materialize([unreadable("broken", bad["broken"])], raise_on_error=False)
    (evaluation,) = result.get_asset_check_evaluations()
    assert not result.success
    assert "predicts_at" in str(evaluation.metadata["what_to_mend"].value)
