"""Who may write into a folder: one process at a time, by a lock on the folder itself that goes with the process.

There is no lock file to be left behind. An object store has no locks: one there has a single writer.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.errors import NestError


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Hold `folder` alone, made if it is not there, until the block or the process ends, however it ends.

    Raises:
        NestError: another process holds it, or it may not be written.
        OSError: it cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
        raise _closed(folder, "written")
    with _held(folder, fcntl.LOCK_EX):
        yield


@contextmanager
def reader(folder: Path) -> Iterator[None]:
    """Hold `folder` together with other readers: nobody writes there meanwhile.

    Raises:
        NestError: a process writes there, or it may not be read.
    """
    with _held(folder, fcntl.LOCK_SH):
        yield


def _closed(folder: Path, may_not_be: str) -> NestError:
    return NestError(
        f"{folder}: may not be {may_not_be} by you (another user's?). Mend its permissions, or choose a folder of your "
        "own: for a run in NEST_DATA_DIR."
    )


@contextmanager
def _held(folder: Path, kind: int) -> Iterator[None]:
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:
        raise _closed(folder, "read") from None
    try:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NestError(f"{folder}: another run is writing there; wait for it, or end it.") from None
        yield
    finally:
        os.close(descriptor)
