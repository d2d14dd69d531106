"""The few-shot curve as an asset: made by no job, on its own page and in the UI."""

import shutil
from pathlib import Path

import dagster as dg
import pytest

from assets.definitions import _built
from assets.models import few_shot
from assets.models.few_shot import few_shot_asset
from assets.resources import Workspace
from nest_model.commands.parser import parser
from schemas.cards import StepCard
from schemas.errors import NestError
from schemas.settings import Settings
from tests.support.factories.world import make_world, pretrain_one_epoch

COHORT = "mimic_mortality"


def test_no_job_makes_a_few_shot_curve():
    repository = _built().get_repository_def()
    names = {
        key.to_user_string()
        for job in repository.get_all_jobs()
        if not job.name.startswith("__")
        for key in job.asset_layer.executable_asset_keys
    }
    assert {f"{COHORT}_nest", f"{COHORT}_report"} <= names
    assert not {name for name in names if name.endswith("_few_shot")}


def test_flags_are_those_of_the_setting_and_all_models_by_default():
    assert Settings().few_shot_flags == {"systems": "frozen,lightgbm,logistic,nest"}
    own = Settings(few_shot="systems=nest shots=1,8 draws=2")
    assert own.few_shot_flags == {"systems": "nest", "shots": "1,8", "draws": "2"}


@pytest.mark.parametrize("text", ["shot=1", "draws", "draws="])
def test_an_unknown_option_or_one_without_a_value_is_refused(text):
    with pytest.raises(NestError, match=r"NEST_FEW_SHOT: '(shot|draws)' is unknown or has no value; write"):
        _ = Settings(few_shot=text).few_shot_flags


@pytest.mark.parametrize(("systems", "epochs"), [("frozen,nest", "3"), ("frozen,lightgbm", None)])
def test_fine_tuned_nest_is_trained_by_the_setting_of_finetuning(
    systems: str, epochs: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    workspace = Workspace(
        data_dir=str(tmp_path), few_shot=f"systems={systems}", finetuning="epochs=3 readout=cls"
    )
    cards = workspace.layout("mimic").cards
    cards.mkdir()
    for step in ("vocab", "seqset", "nest", f"{COHORT}_labels"):
        StepCard(step=step, contract="any/1", key="made", content=step).write(cards)
    passed_arguments: list[str] = []

    def fake_run(context, pipes, out, command, *arguments):
        passed_arguments[:] = arguments
        raise NestError("enough")

    monkeypatch.setattr(few_shot, "run_nest_model", fake_run)
    resources = {"workspace": workspace, "pipes": dg.PipesSubprocessClient()}
    dg.materialize([few_shot_asset("mimic", COHORT)], resources=resources, raise_on_error=False)

    values = dict(zip(passed_arguments[::2], passed_arguments[1::2], strict=True))
    parser().parse_args(["few-shot", *map(str, passed_arguments), f"--out={tmp_path}"])
    assert (values["--systems"], values.get("--epochs")) == (systems, epochs)


@pytest.mark.long
def test_asset_has_its_page_in_the_report_folder_and_its_picture_in_the_ui(tmp_path: Path):
    workspace = Workspace(data_dir=str(tmp_path / "data"), few_shot="systems=frozen,nest shots=2 draws=2")
    layout = workspace.layout("mimic")
    world = make_world(layout.root, subjects=150)
    layout.labels(COHORT).parent.mkdir(parents=True)
    shutil.copy(world.labels, layout.labels(COHORT))
    shutil.copytree(pretrain_one_epoch(world, tmp_path / "pretrained"), layout.model("mimic_nest"))
    layout.cards.mkdir()
    for step in ("subjects", "vocab", "seqset", "nest", f"{COHORT}_labels"):
        StepCard(step=step, contract="any/1", key="made", content=step).write(layout.cards)
    resources = {"workspace": workspace, "pipes": dg.PipesSubprocessClient()}

    result = dg.materialize([few_shot_asset("mimic", COHORT)], resources=resources)

    (event,) = result.get_asset_materialization_events()
    metadata = event.step_materialization_data.materialization.metadata
    page = layout.report(f"{COHORT}_few_shot") / "few_shot.html"
    assert metadata["report"].value == str(page)
    assert "NEST, fine-tuned" in page.read_text()
    assert metadata["AUROC and AP from few labels"].value.startswith("![](")
    assert "| all |" in metadata["AUROC"].value
    assert (layout.cards / f"{COHORT}_few_shot.card.json").exists()
    assert list(page.parent.glob("nest/*/predictions"))
    assert not list(page.parent.rglob("*.safetensors")), "the weights of the draws are not kept"
