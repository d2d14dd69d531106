"""NEST's ablations go the whole way: pretrained, fine-tuned, asked for predictions."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from nest_model.__main__ import main
from nest_model.data.predictions import read_predictions
from nest_model.options import FineTuningOptions, PretrainingOptions
from schemas.errors import NestError
from schemas.io.seal import sealed, unsealed
from tests.support.factories.world import World, make_world


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), subjects=60)


def pretrain(world: World, out: Path, *flags: str) -> int:
    paths = [f"--{name}={getattr(world, name)}" for name in ("seqset", "subjects", "vocab")]
    return main(["pretrain", *paths, f"--out={out}", "--model=tiny", "--epochs=2", "--threads=1", *flags])


def finetune(world: World, base: Path, out: Path, *flags: str) -> int:
    paths = [f"--pretrained={base}", f"--seqset={world.seqset}", f"--labels={world.labels}"]
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
    base, model = tmp_path / "pretrained", tmp_path / "model"
    assert pretrain(world, base, flag, f"--layers={layers}") == 0
    assert finetune(world, base, model) == 0
    assert predict(world, model, tmp_path / "again.parquet") == 0

    first = probabilities(model / "report" / "predictions.parquet")
    np.testing.assert_allclose(probabilities(tmp_path / "again.parquet"), first, atol=1e-6)
    for folder in (base, model):
        config = json.loads((folder / "config.json").read_text())["model"]
        assert config.items() >= (field | {"layers": layers}).items()
    blocks = {name.split(".")[2] for name in load_file(base / "model.safetensors") if name[:6] == "layers"}
    assert len(blocks) == 1
    assert "attention" not in json.loads((model / "metrics.json").read_text())


@pytest.fixture(scope="module")
def pretrained_folder(world, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("pretrained")
    assert pretrain(world, out) == 0
    return out


def test_a_shuffled_past_is_remembered_by_the_model_and_shuffled_again(world, pretrained_folder, tmp_path):
    plain, with_shuffle = tmp_path / "plain", tmp_path / "shuffled"
    assert finetune(world, pretrained_folder, plain, "--seed=7") == 0
    assert finetune(world, pretrained_folder, with_shuffle, "--seed=7", "--shuffle-sets") == 0
    assert predict(world, with_shuffle, tmp_path / "again.parquet") == 0

    scores = probabilities(with_shuffle / "report" / "predictions.parquet")
    np.testing.assert_allclose(probabilities(tmp_path / "again.parquet"), scores, atol=1e-6)
    seeds = [
        json.loads((folder / "config.json").read_text())["model"]["shuffle_seed"]
        for folder in (pretrained_folder, plain, with_shuffle)
    ]
    assert seeds == [None, None, 7]
    cards = [(folder / "README.md").read_text() for folder in (plain, with_shuffle)]
    assert ["trade their contents at random (seed 7)" in card for card in cards] == [False, True]
    _in_order(with_shuffle)
    assert predict(world, with_shuffle, tmp_path / "in_order.parquet") == 0
    assert np.abs(probabilities(tmp_path / "in_order.parquet") - scores).max() > 1e-4


@pytest.mark.parametrize(
    ("pretraining", "finetuning", "reason"),
    [
        ((), ("--set=max_sets=2",), "of max_sets 2 at most one set lies before the last"),
        (("--max-sets=1", "--msm-weight=0"), (), "of max_sets 1 at most one set lies before the last"),
        (
            ("--cross-set=false",),
            ("--readout=cls",),
            "without cross-set blocks the readout cls reads the last set",
        ),
    ],
)
def test_a_shuffle_that_changes_nothing_is_refused(
    world, pretrained_folder, tmp_path, capsys, pretraining, finetuning, reason
):
    base = tmp_path / "pretrained" if pretraining else pretrained_folder
    if pretraining:
        assert pretrain(world, base, *pretraining) == 0
    assert finetune(world, base, tmp_path / "model", "--shuffle-sets", *finetuning) == 2
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "model" / "metrics.json").exists()
    before = PretrainingOptions.from_text(_as_setting(pretraining))
    with pytest.raises(NestError, match=reason):  # as a job refuses it, before any step
        FineTuningOptions.from_text(_as_setting(["--shuffle-sets=true", *finetuning])).refuse_contradictions(
            before, "tiny"
        )


def _as_setting(flags: Sequence[str]) -> str:
    return " ".join(flag.removeprefix("--set=").removeprefix("--").replace("-", "_") for flag in flags)


def _in_order(model: Path) -> None:
    """Let a model forget that its past was shuffled."""
    file = model / "config.json"
    values = json.loads(unsealed(file.read_text()))
    values["model"]["shuffle_seed"] = None
    file.write_text(sealed(json.dumps(values, indent=2)))


def test_a_frozen_encoder_and_a_mean_of_events_go_the_whole_way(world, pretrained_folder, tmp_path):
    model = tmp_path / "model"
    flags = ["--freeze=embedding,swe,cse", "--readout=mean_pool"]
    assert finetune(world, pretrained_folder, model, *flags) == 0
    assert predict(world, model, tmp_path / "again.parquet") == 0

    first = probabilities(model / "report" / "predictions.parquet")
    np.testing.assert_allclose(probabilities(tmp_path / "again.parquet"), first, atol=1e-6)
    before, after = (load_file(folder / "model.safetensors") for folder in (pretrained_folder, model))
    encoder = [name for name in after if name.startswith("encoder.")]
    assert "encoder.norm.weight" in encoder
    assert all(np.array_equal(after[name], before[name.removeprefix("encoder.")]) for name in encoder)
