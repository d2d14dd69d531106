"""Replace folders atomically: fill a temporary folder beside the target, flush it to disk, rename it."""

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
    """Yield an empty folder that replaces `target` if the block succeeds, and is removed if it fails.

    Its name is different each time. Workers of a killed run, or workers on a bucket that another has finished, may go
    on for long; they know only the old name and do not create the folder again, so they never write to `target`. Only
    one process may call this at a time; it removes the leftovers of others.

    Raises:
        InputError: a file in `target` was not made here, or was changed since.
        WriteError: the disk is full or the folder is not writable; the folder at `target` is unchanged.
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
            aside.rename(whole)  # from here on no worker can find it
            for half in whole.rglob(".*.part"):  # left by a dead or late worker
                half.unlink()
            mark_all(whole)
            put_folder_in_place(whole, target)
    finally:
        for leftover in (aside, whole):
            _remove(leftover, target)


def put_folder_in_place(part: Path, target: Path) -> None:
    """Flush a folder that was filled beside `target`, rename it to `target`, and remove the earlier one.

    A kill between the two renames leaves the earlier folder beside `target`: see `restore`.

    Raises:
        InputError: a file in `target` was not made here, or was changed since.
        OSError: the folder cannot be flushed or renamed.
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
    """Clean up after a run that was killed while it replaced a folder, between or after its two renames."""
    old = _old(target)
    if old.exists() and not target.exists():
        old.rename(target)
        flush(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def flush_tree(folder: Path) -> None:
    """Flush a folder and everything in it to disk."""
    for path in folder.rglob("*"):
        if not path.is_symlink():
            flush(path)
    flush(folder)


def _old(target: Path) -> Path:
    return target.with_name(f".{target.name}.old")


def _name_aside(target: Path) -> Path:
    """Return an unused path beside `target`."""
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")


def _remove(leftover: Path, target: Path) -> None:
    """Rename a temporary folder, then delete it, so that late workers cannot write to it."""
    nameless = _name_aside(target)
    with suppress(OSError):
        leftover.rename(nameless)
    shutil.rmtree(nameless, ignore_errors=True)
