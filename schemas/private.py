"""A folder for rows of patients: its owner's alone, and never in a repository by mistake."""

from pathlib import Path


def make_private(folder: Path) -> None:
    """Make a folder that only its owner may look into and that git ignores; one that is there is left as it is.

    Raises:
        OSError: it cannot be made.
    """
    if folder.is_dir():
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n")
