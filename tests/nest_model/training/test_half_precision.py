"""fp16 training: scaled losses, and skipped steps whose gradients overflow; on a CPU where possible, else on CUDA."""

import json
from pathlib import Path

import pytest
import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins import MixedPrecision

from nest_model.recipe import Recipe
from nest_model.training.device import launch_fabric
from nest_model.training.stop import Stopped, StopRequest
from tests.support.factories.world import StopAfter, World, make_world, pretrain_small, runtime

RECIPE = Recipe(learning_rate=1e-3, epochs=3, patience=3, examples_per_step=6)
OVERFLOWS = 2.0**18  # a loss scale that overflows fp16 (maximum 65,504) in the first few of fifteen steps
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp("world"))


def half(factor: float) -> Fabric:
    """Return Fabric in fp16 on a CPU, which the command refuses, with an initial loss scale."""
    scaler = torch.amp.GradScaler("cpu", init_scale=factor)
    return Fabric(accelerator="cpu", devices=1, plugins=MixedPrecision("16-mixed", "cpu", scaler))


def train(world: World, out: Path, fabric: Fabric, stop: StopRequest | None = None) -> dict:
    pretrain_small(world, runtime(out, fabric, stop=stop), out, RECIPE)
    return json.loads((out / "metrics.json").read_text())


def test_an_fp16_step_with_overflow_is_skipped_without_an_error(world, tmp_path):
    fabric = half(OVERFLOWS)
    metrics = train(world, tmp_path, fabric)

    assert fabric.strategy.precision.scaler.get_scale() < OVERFLOWS
    assert metrics["history"][-1]["val_loss"] < metrics["history"][0]["val_loss"]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(0, id="before any step counts", marks=pytest.mark.long),
        pytest.param(9, id="after some do"),
    ],
)
def test_a_resumed_fp16_run_keeps_the_loss_scale(world, tmp_path, steps):
    train(world, tmp_path / "a", half(OVERFLOWS))
    with pytest.raises(Stopped):
        train(world, tmp_path / "b", half(OVERFLOWS), StopAfter(steps))
    train(world, tmp_path / "b", half(1.0))

    a, b = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("a", "b"))
    assert a == b


@needs_cuda
@pytest.mark.parametrize("precision", ["16-mixed", "bf16-mixed"])
def test_half_precision_on_cuda_reaches_the_losses_of_fp32(world, tmp_path, precision):
    exact = train(world, tmp_path / "32", launch_fabric("cuda", "32-true"))
    low = train(world, tmp_path / "16", launch_fabric("cuda", precision))

    assert low["validation"]["val_loss"] == pytest.approx(exact["validation"]["val_loss"], rel=0.01)
