"""The flags of a training: its step key, by which it finds its saved state, its threads and its seeds."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import dagster as dg
import pytest

from assets.models import cohort_models, common, pretrain
from assets.resources import Workspace
from assets.runtime.code_version import ROOT, code_version
from nest_model.data.predictions import EARLIER_LABELS
from schemas.cards import StepCard
from schemas.errors import NestError
from tests.support.factories.world import make_world
from tests.support.kill.kills import processes_writing_to

MODULES = (pretrain, cohort_models)


@pytest.fixture
def start_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that starts a training with a seed and returns the flags it was given."""
    workspace = Workspace(data_dir=str(tmp_path))
    cards = workspace.layout("mimic").cards
    cards.mkdir()
    for step in ("subjects", "vocab", "seqset", "nest", "mimic_mortality_labels"):
        StepCard(step=step, contract="any/1", key="made", content=step).write(cards)
    passed_arguments: list[str] = []

    def fake_run(context, pipes, out, command, *arguments):
        passed_arguments[:] = arguments
        raise NestError("enough")

    for module in MODULES:
        monkeypatch.setattr(module, "run_nest_model", fake_run)

    def start(asset: dg.AssetsDefinition, seed: int = 1) -> dict[str, str]:
        workspace_with_seed = Workspace(data_dir=str(tmp_path), seed=seed)
        resources = {"workspace": workspace_with_seed, "pipes": dg.PipesSubprocessClient()}
        dg.materialize([asset], resources=resources, raise_on_error=False)
        return dict(zip(passed_arguments[::2], passed_arguments[1::2], strict=True))

    return start


@pytest.mark.parametrize(
    "build",
    [pretrain.pretraining_asset, lambda name: cohort_models.finetuning_asset(name, "mimic_mortality")],
)
def test_training_command_gets_step_key_and_threads(start_training, build, monkeypatch: pytest.MonkeyPatch):
    first = start_training(build("mimic"))
    assert len(first["--key"]) == 64
    assert first["--threads"] in ("1", "2")
    assert start_training(build("mimic")) == first
    assert start_training(build("mimic"), seed=2)["--key"] != first["--key"]
    monkeypatch.setattr(common, "code_version", lambda *_, **__: "other code")
    assert start_training(build("mimic"))["--key"] != first["--key"]


def test_code_version_counts_the_parser_without_other_commands():
    alone = code_version("nest_model.training.device", entry_point="nest_model.commands.parser")
    assert alone != code_version("nest_model.training.device")
    assert alone != code_version("nest_model.training.device", "nest_model.commands.parser")
    assert (ROOT / "nest_model" / "__main__.py").exists()


def terminate_soon(out: Path) -> threading.Thread:
    """Send SIGTERM to the training that writes to this folder, once it has logged its start."""

    def ask() -> None:
        while not (out / "metrics.jsonl").exists():
            time.sleep(0.02)
        for process in processes_writing_to(out):
            os.kill(process, signal.SIGTERM)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread


@pytest.mark.long
def test_stopped_training_is_not_recorded_and_resumes_in_the_next_run(tmp_path: Path):
    workspace = Workspace(data_dir=str(tmp_path), model="tiny")
    layout = workspace.layout("mimic")
    make_world(layout.root, subjects=150)
    layout.cards.mkdir()
    for step in ("subjects", "vocab", "seqset"):
        StepCard(step=step, contract="any/1", key="made", content=step).write(layout.cards)
    out = layout.model("mimic_nest")

    def materialize() -> dg.ExecuteInProcessResult:
        resources = {"workspace": workspace, "pipes": dg.PipesSubprocessClient()}
        return dg.materialize(
            [pretrain.pretraining_asset("mimic")], resources=resources, raise_on_error=False
        )

    signaller = terminate_soon(out)
    stopped_run = materialize()
    signaller.join()

    assert not stopped_run.success
    failure = stopped_run.failure_data_for_node("mimic_nest")
    assert failure is not None
    assert "the state is saved" in str(failure)
    assert stopped_run.asset_materializations_for_node("mimic_nest") == []
    assert not (layout.cards / "nest.card.json").exists()
    assert list((out / "state").iterdir())
    events = [json.loads(line)["event"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert events[-1] == "stopped"

    finished_run = materialize()
    assert finished_run.success
    (materialization,) = finished_run.asset_materializations_for_node("mimic_nest")
    assert {"Training curve", "MLM", "MSM (true KL)"} <= set(materialization.metadata)
    assert (layout.cards / "nest.card.json").exists()
    assert not (out / "state").exists()
    metadata = finished_run.get_asset_observation_events()[
        -1
    ].asset_observation_data.asset_observation.metadata
    assert {"val_mlm", "val_msm", "learning_rate", "padding_avoided", "memory_peak_mib"} <= set(metadata)
    loss = metadata["val_mlm"].value
    assert loss == float(f"{loss:.4g}")


def test_all_yardsticks_train_an_unfrozen_nest_without_pretraining(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    layout = Workspace(data_dir=str(tmp_path)).layout("mimic")
    layout.cards.mkdir()
    of_cohort = (f"mimic_mortality_{step_name}" for step_name in ("labels", "nest", "lightgbm"))
    for step in ("subjects", "vocab", "seqset", "subject_years", "nest", *of_cohort):
        StepCard(step=step, contract="any/1", key="made", content=step).write(layout.cards)
    commands: list[tuple[Path, str, dict[str, str]]] = []

    def fake_run(context, pipes, out, command, *arguments):
        switches = {name: "" for name in arguments if name == "--pretraining-seeds"}
        pairs = [argument for argument in arguments if argument not in switches]
        commands.append((out, command, dict(zip(pairs[::2], pairs[1::2], strict=True)) | switches))
        out.mkdir(parents=True, exist_ok=True)
        return {"metrics": {"auroc": 0.75}}

    for module in MODULES:
        monkeypatch.setattr(module, "run_nest_model", fake_run)

    def metadata(**settings):
        commands.clear()
        workspace = Workspace(data_dir=str(tmp_path), **settings)
        resources = {"workspace": workspace, "pipes": dg.PipesSubprocessClient()}
        result = dg.materialize(
            [cohort_models.yardsticks_asset("mimic", "mimic_mortality")], resources=resources
        )
        (event,) = result.get_asset_materialization_events()
        return event.step_materialization_data.materialization.metadata

    assert "without_pretraining_auroc" not in metadata()
    assert [command for _, command, _ in commands] == ["yardsticks", "temporal"]

    every = {"yardsticks": "all", "finetuning": "epochs=2 freeze=swe"}
    assert metadata(**every)["without_pretraining_auroc"].value == 0.75
    out, command, arguments = commands[-1]
    assert (out.name, command) == ("without_pretraining", "finetune")
    assert arguments["--start"] == "fresh"
    assert arguments["--epochs"] == "2"
    assert "--freeze" not in arguments
    assert arguments["--seed"] == "42"
    StepCard(step="nest", contract="any/1", key="made", content="another pretraining").write(layout.cards)
    metadata(**every)
    assert commands[-1][2]["--key"] == arguments["--key"], "the key must not depend on the pretrained weights"
    labels = layout.model("mimic_mortality_yardsticks") / EARLIER_LABELS
    labels.touch()  # as `temporal` writes it
    StepCard.remove(layout.cards, "mimic_mortality_yardsticks")
    assert metadata(**every)["earlier_auroc"].value == 0.75
    assert [out.name for out, command, _ in commands if command == "finetune"] == [
        "without_pretraining",
        "earlier",
    ]
    assert commands[-1][2]["--labels"] == str(labels)
    assert commands[-1][2]["--freeze"] == "swe", "trained as NEST on all years"
    metadata(**every, seeds="42,7", pretraining_seeds=True)
    fresh, earlier = (arguments for _, command, arguments in commands if command == "finetune")
    assert fresh["--seeds"] == earlier["--seeds"] == "42,7"
    assert "--pretraining-seeds" in earlier
    assert "--pretraining-seeds" not in fresh, "it has no pretraining"


def test_further_seeds_are_passed_to_trainings_and_change_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    layout = Workspace(data_dir=str(tmp_path)).layout("mimic")
    layout.cards.mkdir()
    for step in ("subjects", "vocab", "seqset", "nest", "mimic_mortality_labels"):
        StepCard(step=step, contract="any/1", key="made", content=step).write(layout.cards)
    commands: list[list[str]] = []

    def fake_run(context, pipes, out, command, *arguments):
        commands.append([command, *arguments])
        raise NestError("enough")

    for module in MODULES:
        monkeypatch.setattr(module, "run_nest_model", fake_run)
    trainings = (
        pretrain.pretraining_asset("mimic"),
        cohort_models.finetuning_asset("mimic", "mimic_mortality"),
    )

    def arguments(asset: dg.AssetsDefinition, content: str = "nest", **settings) -> list[str]:
        commands.clear()
        StepCard(step="nest", contract="any/1", key="made", content=content).write(layout.cards)
        resources = {
            "workspace": Workspace(data_dir=str(tmp_path), **settings),
            "pipes": dg.PipesSubprocessClient(),
        }
        dg.materialize([asset], resources=resources, raise_on_error=False)
        return commands[0]

    def key(flags: list[str]) -> str:
        return flags[flags.index("--key") + 1]

    for asset in trainings:
        alone = arguments(asset)
        assert not {"--seeds", "--pretraining-seeds"} & set(alone)
        assert arguments(asset, seeds="42") == alone
        several = arguments(asset, seeds="42,123", pretraining_seeds=True)
        assert several[several.index("--seeds") + 1] == "42,123"
        assert key(several) == key(alone)
    assert "--pretraining-seeds" in several
    only_tasks = [arguments(asset, seeds="42,123") for asset in trainings]
    assert [("--seeds" in flags, "--pretraining-seeds" in flags) for flags in only_tasks] == [
        (False, False),
        (True, False),
    ]
    assert key(arguments(trainings[1], content="a seed more")) == key(several), (
        "the key must not depend on the pretrained weights"
    )
