"""Replace files atomically: write a temporary file beside the target, flush it to disk, rename it.

A killed run, a full disk or a power cut leaves the earlier file intact. Without the flush a renamed file can be empty
after a power cut, because the name reaches the disk before the bytes do.
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
    """Turn a full disk or an unwritable folder into one message that says what to do.

    Raises:
        WriteError: in place of every OSError in the block.
    """
    try:
        yield
    except OSError as error:
        raise WriteError(
            f"{target}: cannot be written ({error.strerror or type(error).__name__}). Free space or fix the folder's "
            "permissions and run again; the earlier files are untouched."
        ) from None


@contextmanager
def replace_file(path: Path, *, by_worker: bool = False) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` if the block succeeds, and is removed if it fails.

    Args:
        by_worker: the file is in a folder from `replace_folder`, which flushes all of it at the end. A missing folder
            is not created: the run has died or continues without this worker. Several workers may write the same file,
            so each has its own temporary path.

    Raises:
        WriteError: the disk is full or the folder is not writable; the file at `path` is unchanged.
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
    """Yield a temporary path for each of `paths`; they replace `paths`, in order, if the block succeeds.

    Args:
        before_renaming: called with the temporary paths, already flushed, and `paths`.

    Raises:
        WriteError: see `replace_file`; nothing is renamed before all files are written and flushed.
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
    """Return the temporary path of a file until it is complete."""
    return path.with_name(f".{path.name}.part")


def put_in_place(part: Path, path: Path) -> None:
    """Flush a file that was written beside `path`, rename it to `path`, and flush the folder.

    Raises:
        OSError: the file cannot be flushed or renamed; the file at `path` is unchanged.
    """
    flush(part)
    part.replace(path)
    flush(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8, creating its folder if needed.

    Raises:
        WriteError: see `replace_file`.
    """
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes to a file, creating its folder if needed.

    Raises:
        WriteError: see `replace_file`.
    """
    with replace_file(path) as part:
        part.write_bytes(content)


def make_folder(folder: Path, *, mode: int = 0o777) -> None:
    """Create a folder and its parents so that they survive a power cut; an existing folder is left unchanged."""
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(mode=mode, parents=True, exist_ok=True)
    for place in new:
        flush(place.parent)


def remove_files(*paths: Path) -> None:
    """Remove files if they exist, ignoring errors."""
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Flush a file's bytes, or the names in a folder, to disk.

    Raises:
        OSError: they cannot be written.
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
                f"{path}: this is a folder, but a file must be written there. Move the folder, or choose another path."
            )
