"""Walk a folder: one function for reading and for hashing a user's files, so that both see the same files."""

import os
from collections.abc import Iterator
from pathlib import Path


def leaves(folder: Path) -> Iterator[Path]:
    """Yield, in order, everything in a folder that cannot be descended into; links to folders are followed.

    These are files, broken or circular links, and folders that are empty or not readable.
    """
    try:
        inside = sorted(folder.iterdir())
    except OSError:
        inside = []
    if not inside:
        yield folder
    for path in inside:
        if os.path.isdir(path) and not leads_back(path):
            yield from leaves(path)
        else:
            yield path


def leads_back(path: Path) -> bool:
    """Return whether a path is a link to one of its own parent folders."""
    if not (path.is_symlink() and os.path.isdir(path)):
        return False
    return path.resolve() in {above.resolve() for above in path.absolute().parents}
