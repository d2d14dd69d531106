"""Lock folders so that only one process at a time writes to them; a lock ends with its process.

The lock is on the folder itself, so no lock file can be left behind. An object store has no locks: use one writer.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.errors import NestError

_held_until_exit: dict[tuple[int, int], int] = {}  # device and inode of a folder -> file descriptor


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Lock `folder` exclusively, creating it if needed, until the block or the process ends.

    Raises:
        NestError: another process has locked the folder, or it is not writable.
        OSError: the folder cannot be created.
    """
    _make_writable(folder)
    if _identity(folder) in _held_until_exit:
        yield
        return
    with _held(folder, fcntl.LOCK_EX):
        yield


@contextmanager
def reader(folder: Path) -> Iterator[None]:
    """Lock `folder` for reading, together with other readers, so that no process writes there.

    Raises:
        NestError: a process is writing there, or the folder is not readable.
    """
    with _held(folder, fcntl.LOCK_SH):
        yield


def hold_until_exit(folder: Path) -> bool:
    """Lock `folder` exclusively until this process ends; return False if another process has locked it.

    Raises:
        NestError: the folder is not writable.
        OSError: the folder cannot be created.
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
    """Return whether another process has locked `folder`; False if it does not exist."""
    try:
        with _held(folder, fcntl.LOCK_SH):
            return False
    except FileNotFoundError:
        return False
    except NestError:
        return True


def in_use_error(folder: Path) -> NestError:
    """Return the error for a folder that another process is writing to."""
    return NestError(f"{folder}: another run is writing there; wait for it, or end it.")


def _make_writable(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
        raise _no_access(folder, "writable")


def _no_access(folder: Path, adjective: str) -> NestError:
    return NestError(
        f"{folder}: not {adjective} by you; does another user own it? Fix its permissions, or choose a folder of your "
        "own; for a run, set NEST_DATA_DIR."
    )


def _identity(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino


@contextmanager
def _held(folder: Path, kind: int) -> Iterator[None]:
    descriptor = _open(folder)
    try:
        if not _lock(descriptor, kind):
            raise in_use_error(folder)
        yield
    finally:
        os.close(descriptor)


def _open(folder: Path) -> int:
    try:
        return os.open(folder, os.O_RDONLY)
    except PermissionError:
        raise _no_access(folder, "readable") from None


def _lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
