"""A very small pretraining, here or on ranks: `torchrun … -m tests.support.run_ranks WORLD OUT STRATEGY SECONDS`."""

import logging
import os
import subprocess
import sys
from pathlib import Path

from nest_model.training import torchrun
from nest_model.training.device import launch_fabric
from nest_model.training.recipe import Recipe
from nest_model.training.stop import StopRequest
from nest_model.training.telemetry import NullTelemetry, Telemetry
from tests.support.commands import ROOT
from tests.support.factories.world import World, pretrain_small, runtime

# several micro-batches a step, of few and of many rows, and a last step of 4 patients
SEVERAL_GROUPS = {"decays": "matrices", "clip_norm": 1.0, "starts_at_shares": True, "shares_embeddings": True}
RECIPE = Recipe(
    learning_rate=1e-3,
    epochs=3,
    patience=3,
    examples_per_step=6,
    row_budget=40,
    decays="matrices",
    clip_norm=1.0,
    starts_at_shares=True,
    shares_embeddings=True,
)


def train(world: World, out: Path, strategy: str = "auto", seconds_between_states: float = 60) -> None:
    telemetry = Telemetry(out) if torchrun.rank() == 0 else NullTelemetry()
    with StopRequest().handling_signals() as stop:
        fabric = launch_fabric("cpu", threads=1, strategy=strategy)
        on = runtime(out, fabric, telemetry, stop, seconds_between_states=seconds_between_states)
        pretrain_small(world, on, out, RECIPE)


def on_ranks(*arguments: object, ranks: int = 2, restarts: int = 0) -> subprocess.Popen:
    """Start `python -m <arguments>` on ranks that find each other at a port of the system's choosing.

    The agent would keep one store for all attempts, where ranks that start again find addresses of those that ended.
    """
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *(f"--nproc-per-node={ranks}", f"--max-restarts={restarts}", "-m", *map(str, arguments)),
        ],
        env=os.environ | {"PYTHONPATH": str(ROOT), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen) -> str:
    """Wait for ranks to end and return what they said; where they do not in five minutes, end them."""
    try:
        return process.communicate(timeout=300)[1]
    except subprocess.TimeoutExpired:
        process.terminate()  # torchrun ends its ranks; they are in sessions of their own
        process.wait(timeout=60)
        raise


def trained_on_ranks(
    world: World, out: Path, strategy: str = "auto", seconds: float = 60, **more: int
) -> str:
    """Run `train` on ranks to its end and return what it said."""
    process = on_ranks("tests.support.run_ranks", world.root, out, strategy, seconds, **more)
    said = ended(process)
    assert process.returncode == 0, said
    return said


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO if torchrun.rank() == 0 else logging.ERROR)
    root, out, strategy, seconds = sys.argv[1:]
    train(World(Path(root)), Path(out), strategy, float(seconds))
