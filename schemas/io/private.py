"""A folder for rows of patients: its owner's alone, and never in a repository by mistake."""

from pathlib import Path

from schemas.io.atomic import make_folder, write_text


def make_private(folder: Path) -> None:
    """Make a folder that only its owner may look into and that git ignores; one that is there is left as it is.

    Raises:
        OSError: it cannot be made.
    """
    if folder.is_dir():
        return
    make_folder(folder, mode=0o700)
    write_text(folder / ".gitignore", "*\n")
