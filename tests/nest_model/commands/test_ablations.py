"""NEST's ablations go the whole way: pretrained, fine-tuned, asked for predictions."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from nest_model.__main__ import main
from nest_model.data.predictions import read_predictions
from tests.support.factories.world import World, make_world


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), subjects=60)


def pretrain(world: World, out: Path, *flags: str) -> int:
    paths = [f"--{name}={getattr(world, name)}" for name in ("seqset", "subjects", "vocab")]
    return main(["pretrain", *paths, f"--out={out}", "--model=tiny", "--epochs=2", "--threads=1", *flags])


def finetune(world: World, pretrained: Path, out: Path, *flags: str) -> int:
    paths = [f"--pretrained={pretrained}", f"--seqset={world.seqset}", f"--labels={world.labels}"]
    places = [f"--out={out}", f"--predictions={out / 'report' / 'predictions.parquet'}"]
    return main(["finetune", *paths, *places, "--epochs=2", "--threads=1", *flags])


def predict(world: World, model: Path, out: Path) -> int:
    paths = [f"--model={model}", f"--seqset={world.seqset}", f"--index={world.labels}", f"--out={out}"]
    return main(["predict", *paths, "--threads=1"])


def probabilities(file: Path) -> np.ndarray:
    """Return the predictions sorted by their keys, [rows, classes]."""
    predictions = read_predictions(file)
    return predictions.probability[np.lexsort((predictions.encounter_id, predictions.subject_id))]


@pytest.mark.parametrize(
    ("flag", "layers", "field"),
    [("--set-wise=mean_pool", 4, {"set_wise": "mean_pool"}), ("--cross-set=false", 3, {"cross_set": False})],
)
def test_an_ablation_is_pretrained_fine_tuned_and_asked(world, tmp_path, flag, layers, field):
    pretrained, model = tmp_path / "pretrained", tmp_path / "model"
    assert pretrain(world, pretrained, flag, f"--layers={layers}") == 0
    assert finetune(world, pretrained, model) == 0
    assert predict(world, model, tmp_path / "again.parquet") == 0

    first = probabilities(model / "report" / "predictions.parquet")
    np.testing.assert_allclose(probabilities(tmp_path / "again.parquet"), first, atol=1e-6)
    for folder in (pretrained, model):
        config = json.loads((folder / "config.json").read_text())["model"]
        assert config.items() >= (field | {"layers": layers}).items()
    blocks = {
        name.split(".")[2] for name in load_file(pretrained / "model.safetensors") if name[:6] == "layers"
    }
    assert len(blocks) == 1
    assert "attention" not in json.loads((model / "metrics.json").read_text())
