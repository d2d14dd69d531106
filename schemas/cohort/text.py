"""Read the text of an untrusted cohort file: anything but a small text file is a fault, without any waiting."""

import os
import stat
from pathlib import Path

from schemas.cohort.faults import CohortError, Fault

MAX_BYTES = 64 * 1024
"""Enough for over 5,000 codes. A text of this size is parsed in half a second, whatever it contains."""

_UNREADABLE = "cannot be read; is it a text file in UTF-8?"


def read_text(path: Path) -> str:
    """Return the text of a regular file of at most `MAX_BYTES`, without a byte order mark; wait for no pipe or device.

    Raises:
        CohortError: the file does not exist, is not a text file, or is too large.
    """
    try:
        return _read_bytes(path).decode("utf-8-sig")
    except FileNotFoundError:
        raise _error(path, "there is no such file") from None
    except (OSError, ValueError):  # ValueError: not UTF-8
        raise _error(path, _UNREADABLE) from None


def _read_bytes(path: Path) -> bytes:
    descriptor = os.open(
        path, os.O_RDONLY | os.O_NONBLOCK
    )  # without O_NONBLOCK a pipe would wait for its writer
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _error(path, "is not a file but a folder, a pipe or a device; put a text file in its place")
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > MAX_BYTES:
        problem = f"is larger than {MAX_BYTES // 1024} KiB, the limit for a cohort file"
        raise _error(path, f"{problem}; shorten code lists with prefixes, e.g. [A41*]")
    return content


def _error(path: Path, message: str) -> CohortError:
    return CohortError(str(path), [Fault(1, "", message)])
