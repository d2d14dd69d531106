"""Who may write into a folder: one process at a time, by a lock on the folder itself that goes with the process.

There is no lock file to be left behind. An object store has no locks: one there has a single writer.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.errors import NestError

_held_until_exit: dict[tuple[int, int], int] = {}  # descriptors, by the folder's device and inode


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Hold `folder` alone, made if it is not there, until the block or the process ends, however it ends.

    Raises:
        NestError: another process holds it, or it may not be written.
        OSError: it cannot be made.
    """
    _make_writable(folder)
    if _identity(folder) in _held_until_exit:
        yield
        return
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


def hold_until_exit(folder: Path) -> bool:
    """Hold `folder` alone until this process ends; return False where another process holds it.

    Raises:
        NestError: it may not be written.
        OSError: it cannot be made.
    """
    _make_writable(folder)
    if _identity(folder) in _held_until_exit:
        return True
    descriptor = _open(folder)
    if not _lock(descriptor, fcntl.LOCK_EX):
        os.close(descriptor)
        return False
    _held_until_exit[_identity(folder)] = descriptor
    return True


def is_held(folder: Path) -> bool:
    """Say whether another process holds `folder`; what is not there, nobody holds."""
    try:
        with _held(folder, fcntl.LOCK_SH):
            return False
    except FileNotFoundError:
        return False
    except NestError:
        return True


def in_use(folder: Path) -> NestError:
    """Return what is said to one who would write where another process does."""
    return NestError(f"{folder}: another run is writing there; wait for it, or end it.")


def _make_writable(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
        raise _closed(folder, "written")


def _closed(folder: Path, may_not_be: str) -> NestError:
    return NestError(
        f"{folder}: may not be {may_not_be} by you (another user's?). Mend its permissions, or choose a folder of your "
        "own: for a run in NEST_DATA_DIR."
    )


def _identity(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino


@contextmanager
def _held(folder: Path, kind: int) -> Iterator[None]:
    descriptor = _open(folder)
    try:
        if not _lock(descriptor, kind):
            raise in_use(folder)
        yield
    finally:
        os.close(descriptor)


def _open(folder: Path) -> int:
    try:
        return os.open(folder, os.O_RDONLY)
    except PermissionError:
        raise _closed(folder, "read") from None


def _lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
