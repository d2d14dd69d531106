"""The memory of this process: what it held at most, and what it may still take."""

import contextlib
import resource
import sys
from pathlib import Path

_CONTAINER = Path("/sys/fs/cgroup")


_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024


def available_bytes() -> int | None:
    """Return how much memory this process may still take, of the machine's and of its container's; None: unknown."""
    found = []
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found.append(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")))
    with contextlib.suppress(OSError, ValueError):  # no limit is the word `max`
        most, used = ((_CONTAINER / name).read_text() for name in ("memory.max", "memory.current"))
        found.append(max(int(most) - int(used), 0))
    return min(found, default=None)


def peak_mib() -> float:
    """Return the most memory this process has held, of the GPU where it uses one.

    On Linux as the kernel counts it since the process began: getrusage's figure begins with the parent's.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated() / 2**20
    if Path("/proc/self/status").exists():
        return resident_bytes("VmHWM") / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_BYTES / 2**20


def resident_bytes(field: str, process: int | str = "self") -> int:
    """Return a field of a process's status on Linux, such as `RssAnon`, in bytes."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
