"""Seconds and bytes of a step, on CUDA and on a CPU."""

import multiprocessing
import os
import platform
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.model.models import build
from benchmarks.model.protocols import PROTOCOLS
from benchmarks.model.sets import draw
from benchmarks.model.sizes import Sizes
from nest_model.process import resident_bytes

STEPS = 2  # the second finds the gradients of the first
TINY = Sizes(subjects=1, sets=2, set_rows=2, vocab_size=16, d_model=8, heads=2, d_ff=8, layers=1, window=2)


def seconds(step: Callable[[], None], device: torch.device) -> float:
    """Return how long a step takes, to the end of what it started: by events on CUDA, else by the clock."""
    if device.type != "cuda":
        began = time.perf_counter()
        step()
        return time.perf_counter() - began
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    step()
    ended.record()
    ended.synchronize()
    return began.elapsed_time(ended) / 1000


def peak_bytes(model: str, sizes: Sizes, protocol: str, device: torch.device) -> int:
    """Return the memory that one model and its steps take, weights included.

    On CUDA: torch's peak of allocated memory, nothing else of ours on the device. On a CPU: see `process_peak`.

    Raises:
        torch.OutOfMemoryError: there is no room for it; on a CPU the process was refused memory or killed.
    """
    if device.type == "cuda":
        return _cuda_peak(model, sizes, protocol, device)
    tiny, real = (partial(_steps, model, size, protocol, device) for size in (TINY, sizes))
    try:
        return process_peak(tiny, real)
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise torch.OutOfMemoryError(
                f"{model}, N = {sizes.length:,}: the machine's memory has no room for it; make --subjects or "
                "--sets smaller, or leave the model out by --models."
            ) from None
        raise


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return whether a device, or a CPU's process, was refused memory; one that was killed presumably was."""
    refused = isinstance(error, torch.OutOfMemoryError | BrokenProcessPool)
    return refused or "DefaultCPUAllocator" in str(error)


def process_peak(tiny: Callable[[], Any], real: Callable[[], Any]) -> int:
    """Return how far the peak resident bytes of a fresh process rise with `real` above what they were after `tiny`."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_rise, tiny, real, torch.get_num_threads()).result()


def machine(device: torch.device) -> dict[str, Any]:
    """Return where it was measured, and how busy the machine was before."""
    on_cuda = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if on_cuda else _processor(),
        "threads": None if on_cuda else torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "load_1_min": round(os.getloadavg()[0], 2),
    }


def _cuda_peak(model: str, sizes: Sizes, protocol: str, device: torch.device) -> int:
    _steps(model, TINY, protocol, device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    _steps(model, sizes, protocol, device)
    return torch.cuda.max_memory_allocated(device) - before


def _rise(tiny: Callable[[], Any], real: Callable[[], Any], threads: int) -> int:
    torch.set_num_threads(threads)
    tiny()
    before = resident_bytes("VmRSS")
    real()
    return resident_bytes("VmHWM") - before  # ru_maxrss would begin with that of the process before exec


def _steps(model: str, sizes: Sizes, protocol: str, device: torch.device) -> None:
    run = PROTOCOLS[protocol]
    network = run.prepare(build(model, sizes, device))
    drawn = draw(sizes, torch.Generator()).to(device)
    for _ in range(STEPS):
        run.step(network, drawn)


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
