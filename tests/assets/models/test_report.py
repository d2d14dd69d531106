"""The pages of a source and of a cohort count at the thresholds of the cohort's file, and come after its models."""

import json
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.execution.api import create_execution_plan

from assets.definitions import defs
from assets.models import report
from assets.resources import Workspace
from schemas.cards import COHORT_STEPS, StepCard
from schemas.cohort import parse_cohort
from schemas.errors import NestError
from tests.support.commands import ROOT
from tests.support.factories import predictions as made_up

COHORT, OTHER = "mimic_mortality", "mimic_long_stay"
FILE = ROOT / "assets" / "cohorts" / f"{COHORT}.yaml"


def test_pages_of_a_source_and_a_cohort_get_the_thresholds_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    workspace = Workspace(data_dir=str(tmp_path))
    cards = workspace.layout("mimic").cards
    cards.mkdir()
    for step in ("nest", *(f"{COHORT}_{step}" for step in COHORT_STEPS[:-1])):
        StepCard(step=step, contract="any/1", key="made", content=step).write(cards)
    thresholds = []

    def fake_run(context, pipes, out, command, *arguments):
        options = dict(zip(arguments[::2], arguments[1::2], strict=True))
        thresholds.append(options["--thresholds"])
        raise NestError("enough")

    monkeypatch.setattr(report, "run_nest_model", fake_run)
    cohort = parse_cohort(FILE).model_copy(update={"thresholds": (0.1, 0.25)})
    resources = {"workspace": workspace, "pipes": dg.PipesSubprocessClient()}
    for asset in (report.report_asset("mimic", [cohort]), report.cohort_report_asset("mimic", cohort)):
        dg.materialize([asset], resources=resources, raise_on_error=False)

    of_source, of_cohort = thresholds
    assert json.loads(of_source) == {COHORT: [0.1, 0.25]}
    assert of_cohort == "0.1,0.25"


def test_page_of_a_source_leaves_out_a_cohort_whose_model_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    workspace = Workspace(data_dir=str(tmp_path))
    cards = workspace.layout("mimic").cards
    cards.mkdir()
    steps = ("nest", *(f"{cohort}_{step}" for cohort in (COHORT, OTHER) for step in COHORT_STEPS[:-1]))
    for step in steps:
        warnings = ["failed: memory ran out."] if step == f"{OTHER}_nest" else []
        StepCard(step=step, contract="any/1", key="made", content=step, warnings=warnings).write(cards)
    pages = []

    def fake_run(context, pipes, out, command, *arguments):
        pages.append((command, dict(zip(arguments[::2], arguments[1::2], strict=True)).get("--cohorts")))
        raise NestError("enough")

    monkeypatch.setattr(report, "run_nest_model", fake_run)
    cohorts = [parse_cohort(FILE.with_name(f"{name}.yaml")) for name in (COHORT, OTHER)]
    resources = {"workspace": workspace, "pipes": dg.PipesSubprocessClient()}
    dg.materialize([report.report_asset("mimic", cohorts)], resources=resources, raise_on_error=False)
    dg.materialize(
        [report.cohort_report_asset("mimic", cohorts[1])], resources=resources, raise_on_error=False
    )
    assert pages == [("report", COHORT)], "and the failed cohort's own page is refused"


def test_pages_in_the_ui_have_the_results_of_every_model(tmp_path: Path):
    workspace = Workspace(data_dir=str(tmp_path))
    layout = made_up.write_layout(tmp_path / "mimic", subjects=300)
    for step in (file.name.removesuffix(".card.json") for file in layout.cards.glob("*.card.json")):
        card = StepCard.read(layout.cards, step).model_copy(update={"key": "made", "content": step})
        card.write(layout.cards)
    for step in ("nest", *(f"{COHORT}_{step}" for step in COHORT_STEPS[:-1])):
        StepCard(step=step, contract="any/1", key="made", content=step).write(layout.cards)
    cohort = parse_cohort(FILE)
    resources = {"workspace": workspace, "pipes": dg.PipesSubprocessClient()}
    for asset in (report.report_asset("mimic", [cohort]), report.cohort_report_asset("mimic", cohort)):
        run = dg.materialize([asset], resources=resources)
        table = run.asset_materializations_for_node(asset.op.name)[0].metadata["results_table"].value
        assert "| Mortality | NEST |" in table
        assert "| LightGBM |" in table


@pytest.mark.parametrize("page", ["mimic_mortality_report", "mimic_report"])
@pytest.mark.parametrize("step", ["leak_audit", "nest", "lightgbm", "yardsticks"])
def test_a_page_that_is_made_with_one_of_its_models_alone_comes_after_it(page: str, step: str):
    model = f"mimic_mortality_{step}"
    job = dg.define_asset_job("both", [model, page]).resolve(asset_graph=defs().resolve_asset_graph())

    assert model in create_execution_plan(job).get_all_step_deps()[page]
