"""A system other than NEST goes the whole way: pretrained, fine-tuned, asked for predictions."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from nest_model.__main__ import main
from nest_model.data.predictions import read_predictions
from nest_model.systems import systems
from nest_model.training.recipe import PRETRAINING
from nest_model.training.stop import Stopped
from tests.support.factories.world import StopAfter, World, make_world, pretrain_small, runtime

RECIPE = PRETRAINING["tiny"].with_changes(epochs=2)
OTHERS = [name for name in systems() if name != "nest"]
SIZES = {"gt_behrt": {"d_model": 20}}
"""Sizes of systems that the small ones of a test do not fit."""


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), subjects=60)


# the everyday suite has one with BERT's objective, one with another, and one with two stages
EVERYDAY = {"bert", "motor", "gt_behrt"}
WHOLE_WAY = [pytest.param(name, marks=() if name in EVERYDAY else pytest.mark.long) for name in OTHERS]


@pytest.fixture(scope="module", params=WHOLE_WAY)
def system(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def pretrained_folder(world, system, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("pretrained")
    assert main([*pretraining(world, system), f"--out={out}"]) == 0
    return out


def pretraining(world: World, system: str = "bert") -> list[str]:
    paths = [f"--{name}={getattr(world, name)}" for name in ("seqset", "subjects", "vocab")]
    return ["pretrain", *paths, f"--system={system}", "--model=tiny", "--epochs=2", "--threads=1"]


def test_a_system_is_pretrained_fine_tuned_and_asked(world, system, pretrained_folder, tmp_path):
    model, predictions = tmp_path / "model", tmp_path / "report" / "predictions.parquet"
    paths = [f"--seqset={world.seqset}", f"--labels={world.labels}"]
    places = [f"--pretrained={pretrained_folder}", f"--out={model}", f"--predictions={predictions}"]
    assert main(["finetune", *paths, *places, "--epochs=2", "--threads=1"]) == 0
    command = ["predict", f"--model={model}", f"--seqset={world.seqset}", f"--index={world.labels}"]
    assert main([*command, f"--out={tmp_path / 'again.parquet'}", "--threads=1"]) == 0

    scores, again = (read_predictions(file) for file in (predictions, tmp_path / "again.parquet"))
    assert scores.model == again.model == f"mimic_made_up_{system}"
    np.testing.assert_allclose(np.sort(again.probability, 0), np.sort(scores.probability, 0), atol=1e-6)
    for folder, stage in ((pretrained_folder, "pretrained"), (model, "fine-tuned")):
        card = (folder / "README.md").read_text()
        assert f"\n# {systems()[system].title}, {stage}" in card
        assert "NEST" not in card.replace("docs/python.md of NEST", ""), "the model is no NEST"
        assert json.loads((folder / "config.json").read_text())["system"] == system


def test_who_guesses_tokens_alone_is_judged_by_them_alone(system, pretrained_folder):
    if "mlm" not in systems()[system].stages:
        pytest.skip(f"{system} has an objective of its own")
    metrics = json.loads((pretrained_folder / "metrics.json").read_text())
    assert set(metrics["validation"]) == {"val_loss", "val_mlm"}
    assert set(metrics["yardsticks"]) == {"val_mlm"}
    assert {name for epoch in metrics["history"] for name in epoch} == {
        "epoch", "train_loss", "train_mlm", "val_loss", "val_mlm",
    }  # fmt: skip
    assert metrics["history"][-1]["train_mlm"] != metrics["history"][0]["train_mlm"]
    assert not [name for name in load_file(pretrained_folder / "model.safetensors") if "set_head" in name]


def test_a_stopped_system_resumes_to_the_same_weights(world, system, tmp_path):
    def train(name: str, stop=None) -> bytes:
        out = tmp_path / name
        pretrain_small(world, runtime(out, stop=stop), out, RECIPE, system=system, **SIZES.get(system, {}))
        return (out / "model.safetensors").read_bytes()

    with pytest.raises(Stopped):
        train("stopped", StopAfter(5))
    assert train("stopped") == train("whole")


def test_what_bert_does_not_have_is_refused_before_training(world, tmp_path, capsys):
    flags = [f"--out={tmp_path / 'out'}", "--msm-weight=0.5", "--position=index"]
    assert main([*pretraining(world), *flags]) == 2
    assert (
        "bert has no position, msm_weight; leave out what only another system reads."
        in capsys.readouterr().err
    )
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_an_unknown_system_is_refused_with_the_nearest(world, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main([*pretraining(world), f"--out={tmp_path / 'out'}", "--system=brt"])
    assert "system 'brt' is unknown; did you mean bert?" in capsys.readouterr().err
