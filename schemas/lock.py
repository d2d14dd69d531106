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
        NestError: another process holds it.
        OSError: it cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _held(folder, fcntl.LOCK_EX):
        yield


@contextmanager
def reader(folder: Path) -> Iterator[None]:
    """Hold `folder` together with other readers: nobody writes there meanwhile.

    Raises:
        NestError: a process writes there.
    """
    with _held(folder, fcntl.LOCK_SH):
        yield


@contextmanager
def _held(folder: Path, kind: int) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NestError(f"{folder}: another run is writing there; wait for it, or end it.") from None
        yield
    finally:
        os.close(descriptor)
