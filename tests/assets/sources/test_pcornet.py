"""The job on a PCORnet CDM, from raw tables to three paediatric risk models and their pages, as a user runs it."""

import re
from pathlib import Path

import polars as pl
import pytest

from schemas.cards import COHORT_STEPS
from schemas.layout import Layout
from tests.support.commands import Run, run

COHORTS = ("pcornet_recurrent_aom", "pcornet_autism", "pcornet_readmission_30d_home")


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run `dagster job execute -j pcornet_full` on a few synthetic children."""
    folder = tmp_path_factory.mktemp("pcornet_full")
    return run(
        "dagster", "job", "execute", "-j", "pcornet_full", folder=folder, NEST_SYNTHETIC_CHILDREN="400"
    )


@pytest.mark.long
def test_pcornet_full_writes_the_report_and_a_page_for_each_cohort(full: Run):
    assert full.returncode == 0, full.output[-3000:]
    layout = Layout(full.data / "pcornet")
    assert full.output.splitlines()[-1].endswith(f"done; see {layout.report('pcornet') / 'report.html'}")
    for cohort in COHORTS:
        assert pl.read_parquet(layout.labels(cohort)).height
        for page in ("pcornet", cohort):
            assert f'<section id="{cohort}">' in (layout.report(page) / "report.html").read_text()


@pytest.mark.long
def test_untrainable_models_are_reported_and_fail_nothing(full: Run):
    layout = Layout(full.data / "pcornet")
    for cohort in COHORTS:
        page = (layout.report(cohort) / "report.html").read_text()
        for model in ("nest", "lightgbm"):
            is_told = "not trainable: " in page
            has_predictions = (layout.report(f"{cohort}_{model}") / "predictions.parquet").exists()
            assert has_predictions or is_told
    assert "The patients are synthetic" in page


@pytest.mark.long
def test_job_of_one_cohort_reuses_existing_outputs(full: Run, tmp_path: Path):
    folder = full.data.parent
    result = run(
        "dagster",
        "job",
        "execute",
        "-j",
        "one_cohort_pcornet_autism",
        folder=folder,
        NEST_SYNTHETIC_CHILDREN="400",
    )
    assert result.returncode == 0, result.output[-3000:]
    assert set(re.findall(r"(\w+): unchanged: nothing to do", result.log)) == {
        f"pcornet_autism_{step}" for step in COHORT_STEPS
    }
    assert result.output.splitlines()[-1].endswith("reports/pcornet_autism/report.html")
