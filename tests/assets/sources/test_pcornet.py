"""The job on a PCORnet CDM, as its user runs it: raw tables to three paediatric risk models and their pages."""

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
    """`dagster job execute -j pcornet_full`, word for word, on few synthetic children."""
    folder = tmp_path_factory.mktemp("pcornet_full")
    return run(
        "dagster", "job", "execute", "-j", "pcornet_full", folder=folder, NEST_SYNTHETIC_CHILDREN="400"
    )


@pytest.mark.long
def test_pcornet_full_runs_to_its_report_and_a_page_for_each_of_three_cohorts(full: Run):
    assert full.returncode == 0, full.output[-3000:]
    layout = Layout(full.data / "pcornet")
    assert full.output.splitlines()[-1].endswith(f"done; see {layout.report('pcornet') / 'report.html'}")
    for cohort in COHORTS:
        assert pl.read_parquet(layout.labels(cohort)).height
        for page in ("pcornet", cohort):
            assert f'<section id="{cohort}">' in (layout.report(page) / "report.html").read_text()


@pytest.mark.long
def test_what_too_few_children_can_teach_is_said_and_fails_nothing(full: Run):
    layout = Layout(full.data / "pcornet")
    for cohort in COHORTS:
        told = (layout.report(cohort) / "report.html").read_text()
        for model in ("nest", "lightgbm"):
            is_told = "not trainable: " in told
            scored = (layout.report(f"{cohort}_{model}") / "predictions.parquet").exists()
            assert scored or is_told
    assert "The patients are synthetic" in told


@pytest.mark.long
def test_the_job_of_one_cohort_runs_on_what_is_there(full: Run, tmp_path: Path):
    folder = full.data.parent
    done = run(
        "dagster",
        "job",
        "execute",
        "-j",
        "cohort_pcornet_autism",
        folder=folder,
        NEST_SYNTHETIC_CHILDREN="400",
    )
    assert done.returncode == 0, done.output[-3000:]
    assert set(re.findall(r"(\w+) - unchanged: nothing to do", done.output)) == {
        f"pcornet_autism_{what}" for what in COHORT_STEPS
    }
    assert done.output.splitlines()[-1].endswith("reports/pcornet_autism/report.html")
