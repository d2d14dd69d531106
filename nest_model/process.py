"""The memory of this process: its peak, and what is still available to it."""

import contextlib
import resource
import sys
from pathlib import Path

_CONTAINER = Path("/sys/fs/cgroup")


_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024


def available_bytes() -> int | None:
    """Return the memory still available on this machine and in its container, the lower of the two; None: unknown."""
    limits = []
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        limits.append(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")))
    with contextlib.suppress(OSError, ValueError):  # without a limit memory.max holds the word `max`
        limit, used = ((_CONTAINER / name).read_text() for name in ("memory.max", "memory.current"))
        limits.append(max(int(limit) - int(used), 0))
    return min(limits, default=None)


def peak_mib() -> float:
    """Return this process's peak memory, on the GPU where it uses one.

    On Linux the kernel's VmHWM is read, because getrusage starts from the parent's peak.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        peak_bytes: int = torch.cuda.max_memory_allocated()
        return peak_bytes / 2**20
    if Path("/proc/self/status").exists():
        return resident_bytes("VmHWM") / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_BYTES / 2**20


def resident_bytes(field: str, process: int | str = "self") -> int:
    """Return a memory field of /proc/<process>/status, such as `RssAnon`, in bytes; Linux only."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
