"""Where a model runs and in which precision, chosen once; on a CPU the same seed gives the same bits."""

import logging
from typing import Literal

import torch
from lightning_fabric import Fabric

from schemas.errors import NestError

log = logging.getLogger("nest")
Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["auto", "32-true", "bf16-mixed", "16-mixed"]


def start(device: Device = "auto", precision: Precision = "auto", *, threads: int = 2) -> Fabric:
    """Return Fabric on one device: fp32 on a CPU, bf16-mixed on CUDA unless told otherwise.

    Raises:
        NestError: no CUDA device where one was asked for, or fp16 on a CPU (it would silently be bf16).
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise NestError("--device cuda: torch sees no CUDA device here; use --device cpu.")
    on_cuda = device != "cpu" and torch.cuda.is_available()
    if precision == "16-mixed" and not on_cuda:
        raise NestError("--precision 16-mixed needs CUDA; use 32-true or bf16-mixed on a CPU.")
    if precision == "auto":
        precision = "bf16-mixed" if on_cuda else "32-true"
    torch.set_num_threads(threads)
    if not on_cuda:  # CUDA has no deterministic kernel for some of what is used
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # a debugging aid that costs time
    log.info("on %s, %s, %d threads", "cuda" if on_cuda else "cpu", precision, threads)
    return Fabric(accelerator="cuda" if on_cuda else "cpu", devices=1, precision=precision)
