"""Where a model runs, how precisely and on how many ranks, chosen once; on a CPU the same seed gives the same bits."""

import logging
import platform
from datetime import timedelta
from typing import Literal

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies import DDPStrategy, ModelParallelStrategy, Strategy

from nest_model.model.attention.plan import fastest
from nest_model.training import torchrun
from nest_model.training.fsdp import shard
from schemas.errors import NestError

log = logging.getLogger("nest")
Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["auto", "32-true", "bf16-mixed", "16-mixed"]
Scaling = Literal["auto", "ddp", "fsdp"]

COMPUTED_IN = {"32-true": torch.float32, "bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
TIMEOUT = timedelta(minutes=10)  # with a rank that neither goes on nor dies


def start(
    device: Device = "auto", precision: Precision = "auto", *, threads: int = 2, strategy: Scaling = "auto"
) -> Fabric:
    """Return Fabric on this rank's device: fp32 on a CPU, bf16-mixed on CUDA unless told otherwise.

    Args:
        threads: of each rank.
        strategy: "ddp": every rank holds the weights; "fsdp": a part of them; "auto": alone, or under torchrun DDP.

    Raises:
        NestError: no CUDA device where one was asked for, fewer than ranks, fp16 where it would silently be
            something else, or a strategy without torchrun.
    """
    on_cuda = _on_cuda(device)
    if precision == "16-mixed" and not on_cuda:
        raise NestError("--precision 16-mixed needs CUDA; use 32-true or bf16-mixed on a CPU.")
    if precision == "16-mixed" and strategy == "fsdp":
        raise NestError("--precision 16-mixed does not go with --strategy fsdp; use bf16-mixed, or ddp.")
    if precision == "auto":
        precision = "bf16-mixed" if on_cuda else "32-true"
    torch.set_num_threads(threads)
    if not on_cuda:  # CUDA has no deterministic kernel for some of what is used
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # a debugging aid that costs time
    fabric = Fabric(
        accelerator="cuda" if on_cuda else "cpu",
        devices=torchrun.ranks_here(),
        num_nodes=torchrun.ranks() // torchrun.ranks_here(),
        strategy=_strategy(strategy),
        precision=precision,
    )
    fabric.launch()
    _tell(fabric, precision, threads)
    return fabric


def _on_cuda(device: Device) -> bool:
    if device == "cuda" and not torch.cuda.is_available():
        raise NestError("--device cuda: torch sees no CUDA device here; use --device cpu.")
    on_cuda = device != "cpu" and torch.cuda.is_available()
    if on_cuda and torch.cuda.device_count() < torchrun.ranks_here():
        raise NestError(
            f"{torchrun.ranks_here()} ranks and {torch.cuda.device_count()} CUDA devices on this machine; "
            "give torchrun --nproc-per-node one rank a device."
        )
    return on_cuda


def _strategy(name: Scaling) -> Strategy | str:
    if name != "auto" and not torchrun.started():
        raise NestError(
            f"--strategy {name} is for several ranks; start it with torchrun --nproc-per-node RANKS -m nest_model …"
        )
    if name == "fsdp":
        return ModelParallelStrategy(
            shard, data_parallel_size=torchrun.ranks(), tensor_parallel_size=1, timeout=TIMEOUT
        )
    return DDPStrategy(timeout=TIMEOUT) if torchrun.ranks() > 1 else "auto"


def _tell(fabric: Fabric, precision: str, threads: int) -> None:
    device = torch.cuda.get_device_name(fabric.device) if fabric.device.type == "cuda" else platform.machine()
    strategies = {"DDPStrategy": "DDP", "ModelParallelStrategy": "FSDP2"}
    log.info(
        "on %s (%s), %s, %d rank(s), %s, attention by %s, %d thread(s) a rank",
        fabric.device.type,
        device,
        precision,
        fabric.world_size,
        strategies.get(type(fabric.strategy).__name__, "one process"),
        fastest(fabric.device, COMPUTED_IN[precision]),
        threads,
    )
