"""Measures the seconds and the peak memory of a step, on CUDA and on a CPU."""

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

STEPS = 2  # at the second, the gradients of the first are still allocated
TINY = Sizes(subjects=1, sets=2, set_rows=2, vocab_size=16, d_model=8, heads=2, d_ff=8, layers=1, window=2)


def seconds(step: Callable[[], object], device: torch.device) -> float:
    """Return how long a step takes, including its kernels: by events on CUDA, else by the clock."""
    if device.type != "cuda":
        start = time.perf_counter()
        step()
        return time.perf_counter() - start
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    step()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1000


def peak_bytes(model: str, sizes: Sizes, protocol: str, device: torch.device) -> int:
    """Return the peak memory of one model and its steps, weights included.

    On CUDA this is torch's peak of allocated memory above that before; on a CPU see `process_peak`.

    Raises:
        torch.OutOfMemoryError: the memory is too small; on a CPU an allocation failed or the process was killed.
    """
    if device.type == "cuda":
        return _cuda_peak(model, sizes, protocol, device)
    tiny, real = (partial(_steps, model, size, protocol, device) for size in (TINY, sizes))
    try:
        return process_peak(tiny, real)
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise torch.OutOfMemoryError(
                f"{model}, N = {sizes.length:,}: does not fit into the machine's memory; make --subjects or --sets "
                "smaller, or leave the model out by --models."
            ) from None
        raise


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return whether an allocation failed on a device or a CPU; a killed process is presumed out of memory."""
    is_memory_error = isinstance(error, torch.OutOfMemoryError | BrokenProcessPool)
    return is_memory_error or "DefaultCPUAllocator" in str(error)


def process_peak(tiny: Callable[[], Any], real: Callable[[], Any]) -> int:
    """Return how far `real` raises the peak resident bytes of a new process above those after `tiny`."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_rise, tiny, real, torch.get_num_threads()).result()


def machine(device: torch.device) -> dict[str, Any]:
    """Return a description of the machine, with its load before the measurement."""
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
    baseline: int = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    _steps(model, sizes, protocol, device)
    return int(torch.cuda.max_memory_allocated(device)) - baseline


def _rise(tiny: Callable[[], Any], real: Callable[[], Any], threads: int) -> int:
    torch.set_num_threads(threads)
    tiny()
    baseline = resident_bytes("VmRSS")
    real()
    return resident_bytes("VmHWM") - baseline  # ru_maxrss would include the peak of the process before exec


def _steps(model: str, sizes: Sizes, protocol: str, device: torch.device) -> None:
    run = PROTOCOLS[protocol]
    network = run.prepare(build(model, sizes, device))
    batch = draw(sizes, torch.Generator()).to(device)
    for _ in range(STEPS):
        run.step(network, batch)


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
