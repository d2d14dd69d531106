"""Set up device, precision and ranks once per process; on a CPU the same seed gives the same bits."""

import logging
import platform
from datetime import timedelta
from typing import Literal

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from lightning_fabric.strategies.model_parallel import ModelParallelStrategy
from lightning_fabric.strategies.strategy import Strategy

from nest_model.model.attention.plan import fastest
from nest_model.training import torchrun
from nest_model.training.fsdp import shard
from schemas.errors import NestError
from schemas.nouns import with_noun

log = logging.getLogger("nest")
Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["auto", "32-true", "bf16-mixed", "16-mixed"]
Scaling = Literal["auto", "ddp", "fsdp"]

COMPUTE_DTYPES = {"32-true": torch.float32, "bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
TIMEOUT = timedelta(minutes=10)  # of waiting for a rank that hangs


def launch_fabric(
    device: Device = "auto", precision: Precision = "auto", *, threads: int = 2, strategy: Scaling = "auto"
) -> Fabric:
    """Launch Fabric on this rank's device; the default precision is fp32 on a CPU and bf16-mixed on CUDA.

    Args:
        threads: per rank.
        strategy: "ddp": every rank holds all weights; "fsdp": each holds a part; "auto": DDP under torchrun, else none.

    Raises:
        NestError: CUDA was requested but is missing, there are fewer devices than ranks, fp16 is not supported here, or
            a strategy is set without torchrun.
    """
    on_cuda = _on_cuda(device)
    if precision == "16-mixed" and not on_cuda:
        raise NestError("--precision 16-mixed needs CUDA; use 32-true or bf16-mixed on a CPU.")
    if precision == "16-mixed" and strategy == "fsdp":
        raise NestError("--precision 16-mixed does not work with --strategy fsdp; use bf16-mixed, or ddp.")
    if precision == "auto":
        precision = "bf16-mixed" if on_cuda else "32-true"
    torch.set_num_threads(threads)
    # it suggests settings that would change the precision; our own line says where a training runs
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    if not on_cuda:  # CUDA lacks deterministic kernels for some operations
        torch.use_deterministic_algorithms(True)
        # a debugging aid that costs time; torch's module defines the attribute at run time
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    fabric = Fabric(
        accelerator="cuda" if on_cuda else "cpu",
        devices=torchrun.ranks_here(),
        num_nodes=torchrun.ranks() // torchrun.ranks_here(),
        strategy=_strategy(strategy),
        precision=precision,
    )
    fabric.launch()
    _log_setup(fabric, precision, threads)
    return fabric


def _on_cuda(device: Device) -> bool:
    if device == "cuda" and not torch.cuda.is_available():
        raise NestError("--device cuda: torch sees no CUDA device here; use --device cpu.")
    on_cuda = device != "cpu" and torch.cuda.is_available()
    if on_cuda and torch.cuda.device_count() < torchrun.ranks_here():
        raise NestError(
            f"{with_noun(torchrun.ranks_here(), 'rank')} but {with_noun(torch.cuda.device_count(), 'CUDA device')} on "
            "this machine; set torchrun --nproc-per-node to one rank per device."
        )
    return on_cuda


def _strategy(name: Scaling) -> Strategy | str:
    if name != "auto" and not torchrun.is_active():
        raise NestError(
            f"--strategy {name} needs several ranks; start it with torchrun --nproc-per-node RANKS -m nest_model …"
        )
    if name == "fsdp":
        return ModelParallelStrategy(
            shard, data_parallel_size=torchrun.ranks(), tensor_parallel_size=1, timeout=TIMEOUT
        )
    return DDPStrategy(timeout=TIMEOUT) if torchrun.ranks() > 1 else "auto"


def _log_setup(fabric: Fabric, precision: str, threads: int) -> None:
    device = torch.cuda.get_device_name(fabric.device) if fabric.device.type == "cuda" else platform.machine()
    strategies = {"DDPStrategy": "DDP", "ModelParallelStrategy": "FSDP2"}
    log.info(
        "on %s (%s), %s, %s, %s, attention by %s, %s a rank",
        fabric.device.type,
        device,
        precision,
        with_noun(fabric.world_size, "rank"),
        strategies.get(type(fabric.strategy).__name__, "one process"),
        fastest(fabric.device, COMPUTE_DTYPES[precision]),
        with_noun(threads, "thread"),
    )
