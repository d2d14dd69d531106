"""What the kernel says of a process's memory."""

from pathlib import Path


def resident_bytes(field: str, process: int | str = "self") -> int:
    """Return a field of the process's status, such as `RssAnon`, in bytes."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
