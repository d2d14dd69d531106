"""The text of a cohort file, read without trust: whatever has its name is a text or a fault, at once."""

import os
import stat
from pathlib import Path

from schemas.cohort.faults import CohortError, Fault

MOST_BYTES = 64 * 1024
"""Over 5,000 codes. A text of this size is read in half a second, whatever stands in it."""

_NO_TEXT = "cannot be read; is it a text file in UTF-8?"


def read_text(path: Path) -> str:
    """Return the text of a regular file of at most `MOST_BYTES`; a pipe or device is never waited for.

    Raises:
        CohortError: there is no such file, it is none of text, or it is too large.
    """
    try:
        return _read_bytes(path).decode("utf-8")
    except FileNotFoundError:
        raise _error(path, "there is no such file") from None
    except (OSError, ValueError):  # ValueError: not UTF-8
        raise _error(path, _NO_TEXT) from None


def _read_bytes(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # without O_NONBLOCK a pipe waits for its writer
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _error(path, "is not a file but a folder, a pipe or a device; put a text file in its place")
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(MOST_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > MOST_BYTES:
        many = f"is larger than {MOST_BYTES // 1024} KiB, which no cohort needs"
        raise _error(path, f"{many}; write code lists with prefixes, e.g. [A41*]")
    return content


def _error(path: Path, message: str) -> CohortError:
    return CohortError(str(path), [Fault(1, "", message)])
