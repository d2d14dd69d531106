"""What a training is started with: the key of its step, by which it knows its own state again, and its threads."""

from pathlib import Path

import dagster as dg
import pytest

from assets import training
from assets.code import ROOT, code_version
from assets.resources import Workspace
from schemas.cards import StepCard
from schemas.errors import NestError


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

    monkeypatch.setattr(training, "run_nest_model", instead)

    def start(asset: dg.AssetsDefinition, seed: int = 1) -> dict[str, str]:
        seeded = Workspace(data_dir=str(tmp_path), seed=seed)
        resources = {"workspace": seeded, "pipes": dg.PipesSubprocessClient()}
        dg.materialize([asset], resources=resources, raise_on_error=False)
        return dict(zip(told[::2], told[1::2], strict=True))

    return start


@pytest.mark.parametrize(
    "build", [training.pretrained, lambda name: training.fine_tuned(name, "mimic_mortality")]
)
def test_a_training_is_told_the_key_of_its_step_and_its_threads(
    started, build, monkeypatch: pytest.MonkeyPatch
):
    first = started(build("mimic"))
    assert len(first["--key"]) == 64
    assert first["--threads"] in ("1", "2")
    assert started(build("mimic")) == first
    assert started(build("mimic"), seed=2)["--key"] != first["--key"]
    monkeypatch.setattr(training, "code_version", lambda *_, **__: "other code")
    assert started(build("mimic"))["--key"] != first["--key"]


def test_the_command_line_counts_to_the_code_of_a_training_and_what_else_it_starts_does_not():
    alone = code_version("nest_model.device", started_by="nest_model.__main__")
    assert alone != code_version("nest_model.device")
    assert alone != code_version("nest_model.device", "nest_model.__main__")
    assert (ROOT / "nest_model" / "__main__.py").exists()
