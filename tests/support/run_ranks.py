"""Run a small pretraining here or on ranks: `torchrun … -m tests.support.run_ranks WORLD OUT STRATEGY SECONDS`."""

import logging
import os
import subprocess
import sys
from pathlib import Path

from nest_model.recipe import Recipe
from nest_model.training import torchrun
from nest_model.training.device import launch_fabric
from nest_model.training.stop import StopRequest
from nest_model.training.telemetry import NullTelemetry, Telemetry
from tests.support.commands import ROOT
from tests.support.factories.world import World, pretrain_small, runtime

# steps of several micro-batches with few and many rows, and a last step of 4 patients
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
        run_settings = runtime(out, fabric, telemetry, stop, seconds_between_states=seconds_between_states)
        pretrain_small(world, run_settings, out, RECIPE)


def start_ranks(*arguments: object, ranks: int = 2, restarts: int = 0) -> subprocess.Popen:
    """Start `python -m <arguments>` on ranks that meet at a free port.

    The setting keeps the agent from sharing its store between attempts, where restarted ranks would find old addresses.
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


def wait_for_ranks(process: subprocess.Popen) -> str:
    """Wait for ranks to end and return their stderr; terminate them after five minutes."""
    try:
        return process.communicate(timeout=300)[1]
    except subprocess.TimeoutExpired:
        process.terminate()  # torchrun ends its ranks, which are in separate sessions
        process.wait(timeout=60)
        raise


def train_on_ranks(
    world: World, out: Path, strategy: str = "auto", seconds: float = 60, **options: int
) -> str:
    """Run `train` on ranks to its end and return its stderr."""
    process = start_ranks("tests.support.run_ranks", world.root, out, strategy, seconds, **options)
    output = wait_for_ranks(process)
    assert process.returncode == 0, output
    return output


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO if torchrun.rank() == 0 else logging.ERROR)
    root, out, strategy, seconds = sys.argv[1:]
    train(World(Path(root)), Path(out), strategy, float(seconds))
