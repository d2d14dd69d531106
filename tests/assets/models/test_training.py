"""What a training is started with: the key of its step, by which it knows its own state again, and its threads."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import dagster as dg
import pytest

from assets.models import cohort_models, pretrain
from assets.resources import Workspace
from assets.runtime.code_version import ROOT, code_version
from schemas.cards import StepCard
from schemas.errors import NestError
from tests.support.factories.world import make_world
from tests.support.kill.kills import processes_writing_to

MODULES = (pretrain, cohort_models)


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Call it with a seed for the flags a training of these cards is started with."""
    workspace = Workspace(data_dir=str(tmp_path))
    cards = workspace.layout("mimic").cards
    cards.mkdir()
    for step in ("subjects", "vocab", "seqset", "nest", "mimic_mortality_labels"):
        StepCard(step=step, contract="any/1", key="made", content=step).write(cards)
    told: list[str] = []

    def instead(context, pipes, out, command, *arguments):
        told[:] = arguments
        raise NestError("enough")

    for module in MODULES:
        monkeypatch.setattr(module, "run_nest_model", instead)

    def start(asset: dg.AssetsDefinition, seed: int = 1) -> dict[str, str]:
        seeded = Workspace(data_dir=str(tmp_path), seed=seed)
        resources = {"workspace": seeded, "pipes": dg.PipesSubprocessClient()}
        dg.materialize([asset], resources=resources, raise_on_error=False)
        return dict(zip(told[::2], told[1::2], strict=True))

    return start


@pytest.mark.parametrize(
    "build",
    [pretrain.pretraining_asset, lambda name: cohort_models.finetuning_asset(name, "mimic_mortality")],
)
def test_a_training_is_told_the_key_of_its_step_and_its_threads(
    started, build, monkeypatch: pytest.MonkeyPatch
):
    first = started(build("mimic"))
    assert len(first["--key"]) == 64
    assert first["--threads"] in ("1", "2")
    assert started(build("mimic")) == first
    assert started(build("mimic"), seed=2)["--key"] != first["--key"]
    for module in MODULES:
        monkeypatch.setattr(module, "code_version", lambda *_, **__: "other code")
    assert started(build("mimic"))["--key"] != first["--key"]


def test_the_command_line_counts_to_the_code_of_a_training_and_what_else_it_starts_does_not():
    alone = code_version("nest_model.training.device", entry_point="nest_model.commands.parser")
    assert alone != code_version("nest_model.training.device")
    assert alone != code_version("nest_model.training.device", "nest_model.commands.parser")
    assert (ROOT / "nest_model" / "__main__.py").exists()


def asked_to_end_soon(out: Path) -> threading.Thread:
    """Send SIGTERM to the training that writes there, once it has told that it trains."""

    def ask() -> None:
        while not (out / "metrics.jsonl").exists():
            time.sleep(0.02)
        for process in processes_writing_to(out):
            os.kill(process, signal.SIGTERM)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread


@pytest.mark.long
def test_a_training_asked_to_end_counts_as_not_made_and_goes_on_when_it_is_run_again(tmp_path: Path):
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

    asking = asked_to_end_soon(out)
    stopped = materialize()
    asking.join()

    assert not stopped.success
    failure = stopped.failure_data_for_node("mimic_nest")
    assert failure is not None
    assert "the state is saved" in str(failure)
    assert stopped.asset_materializations_for_node("mimic_nest") == []
    assert not (layout.cards / "nest.card.json").exists()
    assert list((out / "state").iterdir())
    events = [json.loads(line)["event"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert events[-1] == "stopped"

    made = materialize()
    assert made.success
    (materialization,) = made.asset_materializations_for_node("mimic_nest")
    assert {"Training curve", "MLM", "MSM (true KL)"} <= set(materialization.metadata)
    assert (layout.cards / "nest.card.json").exists()
    assert not (out / "state").exists()
    observed = made.get_asset_observation_events()[-1].asset_observation_data.asset_observation.metadata
    assert {"val_mlm", "val_msm", "learning_rate", "padding_avoided", "memory_peak_mib"} <= set(observed)


def test_all_yardsticks_train_nest_without_pretraining_with_the_settings_of_nest_but_nothing_frozen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    layout = Workspace(data_dir=str(tmp_path)).layout("mimic")
    layout.cards.mkdir()
    of_cohort = (f"mimic_mortality_{what}" for what in ("labels", "nest", "lightgbm"))
    for step in ("subjects", "vocab", "seqset", "nest", *of_cohort):
        StepCard(step=step, contract="any/1", key="made", content=step).write(layout.cards)
    begun: list[tuple[Path, str, dict[str, str]]] = []

    def instead(context, pipes, out, command, *arguments):
        begun.append((out, command, dict(zip(arguments[::2], arguments[1::2], strict=True))))
        out.mkdir(parents=True, exist_ok=True)
        return {"metrics": {"auroc": 0.75}}

    for module in MODULES:
        monkeypatch.setattr(module, "run_nest_model", instead)

    def metadata(**settings):
        begun.clear()
        workspace = Workspace(data_dir=str(tmp_path), **settings)
        resources = {"workspace": workspace, "pipes": dg.PipesSubprocessClient()}
        result = dg.materialize(
            [cohort_models.yardsticks_asset("mimic", "mimic_mortality")], resources=resources
        )
        (event,) = result.get_asset_materialization_events()
        return event.step_materialization_data.materialization.metadata

    assert "without_pretraining_auroc" not in metadata()
    assert [command for _, command, _ in begun] == ["yardsticks"]

    every = {"yardsticks": "all", "finetuning": "epochs=2 freeze=swe"}
    assert metadata(**every)["without_pretraining_auroc"].value == 0.75
    out, command, arguments = begun[-1]
    assert (out.name, command) == ("without_pretraining", "finetune")
    assert arguments["--start"] == "fresh"
    assert arguments["--epochs"] == "2"
    assert "--freeze" not in arguments
    assert arguments["--seed"] == "42"
    StepCard(step="nest", contract="any/1", key="made", content="another pretraining").write(layout.cards)
    metadata(**every)
    assert begun[-1][2]["--key"] == arguments["--key"], "it reads nothing of the pretrained weights"


def test_further_seeds_change_no_key_and_are_named_to_every_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    layout = Workspace(data_dir=str(tmp_path)).layout("mimic")
    layout.cards.mkdir()
    for step in ("subjects", "vocab", "seqset", "nest", "mimic_mortality_labels"):
        StepCard(step=step, contract="any/1", key="made", content=step).write(layout.cards)
    commands: list[list[str]] = []

    def instead(context, pipes, out, command, *arguments):
        commands.append([command, *arguments])
        raise NestError("enough")

    for module in MODULES:
        monkeypatch.setattr(module, "run_nest_model", instead)
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
        "it knows its pretrained weights itself"
    )
