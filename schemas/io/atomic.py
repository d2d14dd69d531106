"""The one way a file is put in place: written beside it, flushed to the disk, renamed.

A killed run, a full disk or a power cut leaves the earlier file whole. What is renamed without a flush can be empty
after a power cut: the name reaches the disk before the bytes do.
"""

import errno
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from schemas.errors import WriteError

_NO_FLUSH_OF_FOLDERS = {errno.EINVAL, errno.ENOTSUP, errno.EBADF}  # some network and user-space file systems


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Turn a full disk or a folder that may not be written into one message that says what to do.

    Raises:
        WriteError: for every OSError of the block.
    """
    try:
        yield
    except OSError as error:
        raise WriteError(
            f"{target}: cannot be written ({error.strerror or type(error).__name__}). Free space or mend the folder's "
            "permissions and run again; the earlier files are untouched."
        ) from None


@contextmanager
def replace_file(path: Path, *, by_worker: bool = False) -> Iterator[Path]:
    """Give a path to write to, which takes the place of `path` when the block ends well, and vanishes when not.

    Args:
        by_worker: into a folder that `replace_folder` gave, which flushes it whole at its end. It is not made where it
            is gone: the run is dead, or goes on without us. Another worker may be at the same file, so each has a
            part of its own.

    Raises:
        WriteError: the disk is full or the folder may not be written; what stood at `path` is untouched.
    """
    if not by_worker:
        with replace_files([path]) as (part,):
            yield part
        return
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with writing(path):
            yield part
            part.replace(path)
    finally:
        remove_files(part)


@contextmanager
def replace_files(
    paths: Sequence[Path],
    *,
    before_renaming: Callable[[Sequence[Path], Sequence[Path]], None] = lambda parts, paths: None,
) -> Iterator[list[Path]]:
    """Give a path to write to for each of `paths`; all take their places, in this order, when the block ends well.

    Args:
        before_renaming: called with what was written, flushed by then, and `paths`.

    Raises:
        WriteError: as `replace_file`; nothing is renamed before all are written and flushed.
    """
    parts = [part_of(path) for path in paths]
    folders = dict.fromkeys(path.parent for path in paths)
    try:
        with writing(paths[0] if len(paths) == 1 else paths[0].parent):
            for folder in folders:
                make_folder(folder)
            yield parts
            _refuse_folders(paths)
            for part in parts:
                flush(part)
            before_renaming(parts, paths)
            for part, path in zip(parts, paths, strict=True):
                part.replace(path)
            for folder in folders:
                flush(folder)
    finally:
        remove_files(*parts)


def part_of(path: Path) -> Path:
    """Return where a file grows until it is whole."""
    return path.with_name(f".{path.name}.part")


def put_in_place(part: Path, path: Path) -> None:
    """Rename a file that was written beside `path`, when it and then its new name are on the disk.

    Raises:
        OSError: it cannot be flushed or renamed; what stood at `path` is untouched.
    """
    flush(part)
    part.replace(path)
    flush(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8, the folder too where there is none.

    Raises:
        WriteError: as `replace_file`.
    """
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes, the folder too where there is none.

    Raises:
        WriteError: as `replace_file`.
    """
    with replace_file(path) as part:
        part.write_bytes(content)


def make_folder(folder: Path, *, mode: int = 0o777) -> None:
    """Make a folder and those above it, whose names outlive a power cut; one that is there is left as it is."""
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(mode=mode, parents=True, exist_ok=True)
    for place in new:
        flush(place.parent)


def remove_files(*paths: Path) -> None:
    """Remove what is left of files, as far as the disk lets us."""
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Return when a file's bytes, or the names in a folder, are on the disk.

    Raises:
        OSError: they cannot be written there.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FLUSH_OF_FOLDERS or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def _refuse_folders(paths: Sequence[Path]) -> None:
    for path in paths:
        if path.is_dir():
            raise WriteError(
                f"{path}: a file is to be written there, and it is a folder. Move it, or name another."
            )
