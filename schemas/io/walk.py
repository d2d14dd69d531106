"""What lies in a folder: one walk to read a user's files and to hash them, so that both see the same."""

import os
from collections.abc import Iterator
from pathlib import Path


def leaves(folder: Path) -> Iterator[Path]:
    """Yield all that lies in a folder and is not entered itself, in order; links to folders are followed.

    That is files, links that lead nowhere or back, and folders that are empty or may not be listed.
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
    """Say whether a path is a link to a folder it lies in, by whatever links one came to it."""
    if not (path.is_symlink() and os.path.isdir(path)):
        return False
    return path.resolve() in {above.resolve() for above in path.absolute().parents}
