"""A cell that fails has a card with the reason, is tried again, and does not keep the page from being made."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from assets.checks import evidence_check
from assets.definitions import _built
from assets.models import cohort_models, common, evidence, pretrain
from assets.resources import Workspace
from assets.runtime import code_version as code
from assets.runtime.step_cache import FAILURES_ARE_RESULTS
from nest_model.evidence.rows import rows_by_name
from nest_model.report import previews
from nest_model.systems import systems
from schemas.cards import StepCard
from schemas.errors import NestError, StoppedError
from schemas.io.outputs import write_json
from schemas.sources import EvidenceSpec
from tests.support.commands import ROOT

TASK = "mimic_mortality"
ROW = rows_by_name()["bert"]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = Workspace(data_dir=str(tmp_path))
    cards = workspace.layout("mimic").cards
    cards.mkdir()
    for step in ("subjects", "vocab", "seqset", "evidence_bert", f"{TASK}_labels"):
        StepCard(step=step, contract="any/1", key="made", content=step).write(cards)
    return workspace


def materialize(
    workspace: Workspace, asset: dg.AssetsDefinition, tags: dict[str, str] | None = None
) -> dg.ExecuteInProcessResult:
    resources = {"workspace": workspace, "pipes": dg.PipesSubprocessClient()}
    return dg.materialize([asset], resources=resources, raise_on_error=False, tags=tags)


def run_with(monkeypatch: pytest.MonkeyPatch, outcome) -> list[tuple[str, ...]]:
    """Let a command of nest_model end like this; return the list of commands that were run."""
    commands: list[tuple[str, ...]] = []

    def fake_run(context, pipes, out, command, *arguments):
        commands.append((command, *arguments))
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    for module in (evidence, pretrain, cohort_models):
        monkeypatch.setattr(module, "run_nest_model", fake_run)
    return commands


def test_a_failed_cell_has_its_reason_on_its_card_and_is_tried_again(workspace, monkeypatch):
    cell, cards = evidence.cell_asset("mimic", ROW, TASK), workspace.layout("mimic").cards
    run_with(monkeypatch, NestError("memory ran out."))
    assert materialize(workspace, cell).success
    card = StepCard.read(cards, "evidence_bert_mortality")
    assert card.failure == "memory ran out."

    commands = run_with(monkeypatch, {"metrics": {"auroc": 0.7}})
    assert materialize(workspace, cell).success
    assert materialize(workspace, cell).success
    assert len(commands) == 1, "a cell that was made is not made again"
    assert StepCard.read(cards, "evidence_bert_mortality").failure is None


def test_a_cell_asked_to_stop_ends_the_run_and_has_no_card(workspace, monkeypatch):
    run_with(monkeypatch, StoppedError("stopped at epoch 1."))
    result = materialize(workspace, evidence.cell_asset("mimic", ROW, TASK))
    assert not result.success
    assert not (workspace.layout("mimic").cards / "evidence_bert_mortality.card.json").exists()


def test_a_cell_whose_pretraining_failed_says_so_and_trains_nothing(workspace, monkeypatch):
    commands, cards = run_with(monkeypatch, {"metrics": {}}), workspace.layout("mimic").cards
    StepCard(step="evidence_bert", contract="any/1", content="x", warnings=["failed: no room."]).write(cards)
    assert materialize(workspace, evidence.cell_asset("mimic", ROW, TASK)).success
    assert not commands
    failure = StepCard.read(cards, "evidence_bert_mortality").failure
    assert failure == "mimic_evidence_bert failed; materialize it again first. It said: no room."


OF_EVERY_COHORT = {
    "nest": lambda: pretrain.pretraining_asset("mimic"),
    f"{TASK}_nest": lambda: cohort_models.finetuning_asset("mimic", TASK),
    f"{TASK}_lightgbm": lambda: cohort_models.lightgbm_asset("mimic", TASK),
}


@pytest.mark.parametrize("step", OF_EVERY_COHORT)
def test_a_model_of_every_cohort_that_fails_ends_other_runs_than_the_evidence_s(step, workspace, monkeypatch):
    asset, cards = OF_EVERY_COHORT[step](), workspace.layout("mimic").cards
    StepCard(step="nest", contract="any/1", key="made", content="nest").write(cards)
    run_with(monkeypatch, NestError("memory ran out."))
    assert not materialize(workspace, asset).success
    assert not StepCard.path(cards, step).exists()

    (job,) = (job for job in _built().resolve_all_job_defs() if job.name == "mimic_evidence")
    assert materialize(workspace, asset, tags=dict(job.tags)).success
    assert StepCard.read(cards, step).failure == "memory ran out."

    run_with(monkeypatch, StoppedError("stopped at epoch 1."))
    assert not materialize(workspace, asset, tags=dict(job.tags)).success, "a request to stop ends the run"


def test_what_reads_a_failed_pretraining_is_refused_and_trains_nothing(workspace, monkeypatch):
    commands, cards = run_with(monkeypatch, {"metrics": {}}), workspace.layout("mimic").cards
    StepCard(step="nest", contract="any/1", content="x", warnings=["failed: no room."]).write(cards)
    StepCard(step=f"{TASK}_nest", contract="model/1", content="an earlier model").write(cards)
    finetuning = cohort_models.finetuning_asset("mimic", TASK)
    result = materialize(workspace, finetuning)
    assert "mimic_nest failed; materialize it again first. It said: no room." in str(
        result.failure_data_for_node(f"{TASK}_nest")
    )
    assert StepCard.read(cards, f"{TASK}_nest").content == "an earlier model"
    assert materialize(workspace, finetuning, tags={FAILURES_ARE_RESULTS: "true"}).success
    assert StepCard.read(cards, f"{TASK}_nest").failure.startswith("mimic_nest failed")
    assert not commands


def test_removals_are_measured_of_models_that_are_there_and_tried_again_where_they_failed(
    workspace, monkeypatch
):
    layout, tasks = workspace.layout("mimic"), [TASK, "mimic_long_stay", "mimic_readmission"]
    for task in tasks[:2]:
        warnings = ["failed: memory ran out."] if task == "mimic_long_stay" else []
        StepCard(step=f"{task}_nest", contract="model/1", content=task, warnings=warnings).write(layout.cards)
        StepCard(step=f"{task}_labels", contract="any/1", content=task).write(layout.cards)
    earlier = layout.model("mimic_evidence_removals") / "mimic_long_stay" / "removals.json"
    write_json(earlier, {})
    removals = evidence.removals_asset("mimic", tasks)

    run_with(monkeypatch, NestError("no room."))
    assert materialize(workspace, removals).success
    assert StepCard.read(layout.cards, "evidence_removals").failure == "no room."
    assert not earlier.exists(), "it is of an earlier model"

    commands = run_with(monkeypatch, {"metrics": {"auroc_lost_without_LAB": 0.1}})
    monkeypatch.setattr(
        previews, "removal_previews", lambda folder: {"any": b"png"} if folder.name == TASK else {}
    )
    for _ in range(2):
        result = materialize(workspace, removals)
        assert result.success
    (materialization,) = result.asset_materializations_for_node("mimic_evidence_removals")
    assert set(materialization.metadata) & {"Mortality", "Long stay", "Readmission"} == {"Mortality"}
    (command,) = commands
    assert command[:3] == ("removals", "--model", str(layout.model(f"{TASK}_nest")))
    card = StepCard.read(layout.cards, "evidence_removals")
    assert card.metrics == {f"{TASK}_auroc_lost_without_LAB": 0.1}


def test_a_pretraining_passes_its_system_and_the_run_s_options(workspace, monkeypatch):
    commands = run_with(monkeypatch, NestError("enough"))
    settings = Workspace(data_dir=workspace.data_dir, pretraining="epochs=3 msm_weight=0.5")
    assert materialize(settings, evidence.pretraining_asset("mimic", ROW)).success
    ((command, *arguments),) = commands
    assert command == "pretrain"
    assert arguments[arguments.index("--system") + 1] == "bert"
    assert arguments[arguments.index("--epochs") + 1] == "3"
    assert "--msm-weight" not in arguments, "BERT masks no sets"


def test_the_job_has_every_cell_of_the_paper_s_tasks_and_mimic_full_has_none():
    definitions = _built()
    graph = definitions.resolve_asset_graph()
    names = {
        job: {
            key.to_user_string() for key in definitions.resolve_job_def(job).asset_layer.executable_asset_keys
        }
        for job in ("mimic_evidence", "mimic_full")
    }
    cells = {name for key in graph.get_all_asset_keys() if "mimic_evidence" in (name := key.to_user_string())}
    assert cells <= names["mimic_evidence"]
    assert not cells & names["mimic_full"]
    assert {"mimic_raw", "mimic_nest", "mimic_mortality_labels", "mimic_mortality_lightgbm"} <= names[
        "mimic_evidence"
    ]


def test_the_study_of_msm_on_children_needs_no_task_and_no_other_model():
    keys = _built().resolve_job_def("pcornet_evidence").asset_layer.executable_asset_keys
    names = {key.to_user_string() for key in keys}
    study = {f"pcornet_evidence_objective_{name}" for name in ("msm", "mlm", "both")}
    assert {name for name in names if "evidence" in name} == study | {
        "pcornet_evidence_inputs",
        "pcornet_evidence_page",
    }
    assert "pcornet_seqset" in names
    assert not [name for name in names if name.endswith(("_labels", "_nest", "_lightgbm"))]


@pytest.mark.parametrize(
    ("row_names", "task_names", "rows", "tasks"),
    [
        ((), (), ["objective_msm", "objective_mlm", "objective_both"], []),
        (("nest", "bert"), (), ["nest", "bert"], ["c_one", "c_two"]),
        (("bert", "objective_mlm"), ("c_two",), ["bert", "objective_mlm"], ["c_two"]),
        (("bert",), ("of_another_source",), [], []),
    ],
)
def test_rows_and_tasks_are_those_named_or_the_source_s(monkeypatch, row_names, task_names, rows, tasks):
    monkeypatch.setenv("NEST_EVIDENCE_SYSTEMS", ",".join(row_names))
    monkeypatch.setenv("NEST_EVIDENCE_TASKS", ",".join(task_names))
    spec = EvidenceSpec(cohorts=("c_one", "c_two"), about="", parts=("objectives",))
    found_rows, found_tasks = evidence._rows_and_tasks(spec, ["c_one", "c_two"])
    assert ([row.name for row in found_rows], found_tasks) == (rows, tasks)


@pytest.mark.parametrize("system", systems())
def test_a_system_s_cells_do_not_depend_on_another_system_s_code(system):
    stages = systems()[system].stages
    files = code._reachable_files(
        (
            "nest_model.commands.pretrain",
            "nest_model.commands.finetune",
            f"nest_model.model.systems.{system}.encoder",
            *(f"nest_model.training.objectives.{stage}" for stage in stages),
        )
    )
    encoders = {file.parent.name for file in files if file.parent.parent.name == "systems"}
    objectives = {file.stem for file in files if file.parent.name == "objectives"} - {"__init__"}
    assert (encoders, objectives) == ({system}, set(stages))


@pytest.fixture
def copied_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the code that trains, which versions are computed of."""
    for room in ("nest_model", "schemas"):
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(code, "ROOT", tmp_path)
    monkeypatch.setattr(common, "code_version", code.code_version.__wrapped__)
    code.read_again()
    yield tmp_path
    code.read_again()


def versions() -> dict[str, str]:
    """Return the version of the code of every system's pretraining and cells, and of LightGBM's cells."""
    code._label_and_hash.cache_clear()
    pretrainings = {f"{system} pretrained": common.pretraining_code(system) for system in systems()}
    cells = {f"{system} cell": common.finetuning_code(system) for system in systems()}
    return pretrainings | cells | {"lightgbm": common.boosting_code()}


def redone_by_an_edit(file: Path, before: dict[str, str]) -> set[str]:
    """Return what has another version than before while a file is edited."""
    text = file.read_text()
    file.write_text(f"{text}# edited\n")
    names = {name for name, version in versions().items() if version != before[name]}
    file.write_text(text)
    return names


def test_an_edited_system_is_redone_and_no_other_one(copied_code):
    before = versions()
    for system in systems():
        for module in ("__init__", "encoder"):
            file = copied_code / "nest_model" / "model" / "systems" / system / f"{module}.py"
            assert redone_by_an_edit(file, before) == {f"{system} pretrained", f"{system} cell"}, module


def test_an_edited_objective_redoes_the_pretrainings_that_have_it_and_no_other(copied_code):
    before = versions()
    for stage in {stage for system in systems().values() for stage in system.stages}:
        file = copied_code / "nest_model" / "training" / "objectives" / f"{stage}.py"
        pretrainings = {f"{name} pretrained" for name, system in systems().items() if stage in system.stages}
        assert redone_by_an_edit(file, before) == pretrainings, stage


def evaluate_page(data: Path, metrics: dict) -> dg.AssetCheckEvaluation:
    """Return what the check of the page says of its numbers."""
    workspace = Workspace(data_dir=str(data))
    file = workspace.layout("mimic").report("mimic_evidence") / "metrics.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(metrics))

    @dg.asset(name="mimic_evidence_page")
    def page() -> None: ...

    result = dg.materialize([page, evidence_check("mimic")], resources={"workspace": workspace})
    (evaluation,) = result.get_asset_check_evaluations()
    return evaluation


@pytest.mark.parametrize("failure", [None, "out of memory."])
def test_check_of_the_page_names_each_cell_that_is_missing(failure, tmp_path):
    row = {"name": "bert", "title": "BERT", "pretraining": {"failure": failure} if failure else {}}
    task = {"title": "ICD chapter", "reasons": {"bert": failure} if failure else {}}
    removals = {"failure": failure} if failure else {}
    evaluation = evaluate_page(
        tmp_path, {"rows": [row], "tasks": {"mimic_icd_chapter": task}, "removals": removals}
    )
    assert evaluation.passed == (failure is None)
    expected = (
        "The pretraining of BERT; BERT (ICD chapter); What NEST loses without parts of its input: out of memory."
        if failure
        else "every cell was made"
    )
    assert evaluation.description == expected


def test_check_of_the_page_names_some_of_many_cells_and_counts_the_others(tmp_path):
    rows = [{"name": str(number), "title": f"Row {number}"} for number in range(20)]
    task = {"title": "Mortality", "reasons": {row["name"]: "not made yet" for row in rows}}
    evaluation = evaluate_page(tmp_path, {"rows": rows, "tasks": {"mimic_mortality": task}, "removals": {}})
    assert evaluation.description.startswith("Row 0 (Mortality); Row 1 (Mortality); ")
    assert evaluation.description.endswith("; Row 5 (Mortality) and 14 more: not made yet.")
