"""The commands on a CUDA device, beside the same on a CPU; skipped where there is none."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from lightning_fabric import Fabric

from nest_model.commands import embed
from nest_model.commands.predict import predict
from nest_model.training.device import launch_fabric
from nest_model.training.recipe import FINETUNING, PRETRAINING
from nest_model.training.stop import Stopped
from nest_model.training.telemetry import Telemetry
from tests.support.factories.world import (
    StopAfter,
    World,
    finetune_small,
    make_world,
    pretrain_small,
    runtime,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
RECIPE = replace(FINETUNING["tiny"], dropout=0.0, epochs=2, least_steps=0)  # a device draws its own dropout
PRECISIONS = [("32-true", 1e-4), ("bf16-mixed", 3e-2), ("16-mixed", 1e-2)]


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), subjects=60)


@pytest.fixture(scope="module")
def pretrained_model(world, tmp_path_factory) -> Path:
    return pretrain_on("cpu", world, tmp_path_factory.mktemp("pretrained"))


@pytest.fixture(scope="module")
def finetuned_model(world, pretrained_model, tmp_path_factory) -> Path:
    return finetune_small(world, pretrained_model, tmp_path_factory.mktemp("tuned"), RECIPE)


def pretrain_on(device: str, world: World, out: Path, precision: str = "32-true") -> Path:
    recipe = PRETRAINING["tiny"].with_changes(epochs=2, least_steps=0)
    pretrain_small(world, runtime(out, launch_fabric(device, precision, threads=1)), out, recipe)
    return out


def validation(model: Path) -> dict[str, float]:
    return json.loads((model / "metrics.json").read_text())["validation"]


# fp16 skips the first of its eight steps, until the losses are scaled so that no gradient overflows
@pytest.mark.parametrize(
    ("precision", "tolerance"), [("32-true", 1e-4), ("bf16-mixed", 3e-2), ("16-mixed", 0.1)]
)
def test_pretraining_on_cuda_ends_near_that_on_a_cpu(world, pretrained_model, tmp_path, precision, tolerance):
    metrics = validation(pretrain_on("cuda", world, tmp_path, precision))
    for loss in ("val_mlm", "val_msm"):
        assert metrics[loss] == pytest.approx(validation(pretrained_model)[loss], rel=tolerance)


def test_a_pretraining_begun_on_a_cpu_is_finished_on_cuda(world, tmp_path):
    recipe = PRETRAINING["tiny"].with_changes(epochs=2, least_steps=0)
    stop = StopAfter(4)
    with pytest.raises(Stopped, match="the state is saved"):
        pretrain_small(world, runtime(tmp_path, stop=stop), tmp_path, recipe)
    rest = StopAfter(6)  # of eight steps, which a training from the start would not reach
    pretrain_small(world, runtime(tmp_path, launch_fabric("cuda", "32-true"), stop=rest), tmp_path, recipe)
    assert json.loads((tmp_path / "metrics.json").read_text())["epochs"] == 2


@pytest.mark.parametrize(("precision", "tolerance"), PRECISIONS)
def test_finetuning_on_cuda_scores_as_on_a_cpu(
    world, pretrained_model, finetuned_model, tmp_path, precision, tolerance
):
    fabric = launch_fabric("cuda", precision, threads=1)
    model = finetune_small(world, pretrained_model, tmp_path, RECIPE, fabric=fabric)

    cuda_scores, cpu_scores = (
        np.stack(pq.read_table(folder.parent / "report" / "predictions.parquet")["probability"].to_numpy())
        for folder in (model, finetuned_model)
    )
    np.testing.assert_allclose(cuda_scores, cpu_scores, atol=3 * tolerance)


@pytest.mark.parametrize(("precision", "tolerance"), PRECISIONS)
def test_predictions_and_embeddings_on_cuda_are_those_on_a_cpu(
    world, finetuned_model, tmp_path, precision, tolerance
):
    def results(name: str, fabric: Fabric) -> tuple[np.ndarray, np.ndarray]:
        folder = tmp_path / name
        places = {"model": finetuned_model, "seqset": world.seqset, "fabric": fabric}
        predict(**places, index=None, out=folder / "scores.parquet", telemetry=Telemetry(folder))
        embed.run(
            **places,
            at="2200-01-01",
            level="sets",
            out=folder / "vectors.parquet",
            telemetry=Telemetry(folder),
        )
        scores, vectors = (pq.read_table(folder / f"{file}.parquet") for file in ("scores", "vectors"))
        return np.stack(scores["probability"].to_numpy()), np.stack(vectors["embedding"].to_numpy())

    cpu_results = results("cpu", launch_fabric("cpu", threads=1))
    cuda_results = results("cuda", launch_fabric("cuda", precision, threads=1))

    for actual, expected in zip(cuda_results, cpu_results, strict=True):
        scale = float(np.abs(expected).max())
        np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)
