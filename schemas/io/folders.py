"""The one way a folder is put in place: filled beside it, flushed to the disk, renamed."""

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path

from schemas.io.atomic import flush, make_folder, writing
from schemas.io.outputs import mark_all, refuse_foreign


@contextmanager
def replace_folder(target: Path) -> Iterator[Path]:
    """Give an empty folder that takes the place of `target` when the block ends well, and vanishes when not.

    It has a name of its own each time. Workers of a run that was killed, or at a bucket that another did too, may go on
    for long; they know no other name and do not make the folder again, so they never reach what stands at `target`.
    To be called by one process at a time, which removes what others left aside.

    Raises:
        InputError: a file in `target` was not made here, or was changed since.
        WriteError: the disk is full or the folder may not be written; what stood at `target` is untouched.
    """
    aside, whole = _name_aside(target), _name_aside(target)
    try:
        with writing(target):
            restore(target)
            refuse_foreign(target)
            for leftover in target.parent.glob(f".{escape(target.name)}.*part"):
                _remove(leftover, target)
            make_folder(aside)
            yield aside
            aside.rename(whole)  # from here on no worker finds it
            for half in whole.rglob(".*.part"):  # of one that died, or is late
                half.unlink()
            mark_all(whole)
            put_folder_in_place(whole, target)
    finally:
        for leftover in (aside, whole):
            _remove(leftover, target)


def put_folder_in_place(part: Path, target: Path) -> None:
    """Rename a folder that was filled beside `target`, when all in it is on the disk; what stood there goes.

    A kill between the two renames leaves the old one beside `target`: see `restore`.

    Raises:
        InputError: a file in `target` was not made here, or was changed since.
        OSError: it cannot be flushed or renamed.
    """
    refuse_foreign(target)
    flush_tree(part)
    old = _old(target)
    if target.exists():
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
    part.rename(target)
    flush(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def restore(target: Path) -> None:
    """Clear up after a run that was killed while it replaced a folder: between its two renames, or after them."""
    old = _old(target)
    if old.exists() and not target.exists():
        old.rename(target)
        flush(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def flush_tree(folder: Path) -> None:
    """Return when all that lies in a folder, and the folder itself, is on the disk."""
    for path in folder.rglob("*"):
        if not path.is_symlink():
            flush(path)
    flush(folder)


def _old(target: Path) -> Path:
    return target.with_name(f".{target.name}.old")


def _name_aside(target: Path) -> Path:
    """Return a name beside `target` that nobody has used."""
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")


def _remove(leftover: Path, target: Path) -> None:
    """Rename a folder aside, then delete it, so that late workers cannot write to it."""
    nameless = _name_aside(target)
    with suppress(OSError):
        leftover.rename(nameless)
    shutil.rmtree(nameless, ignore_errors=True)
