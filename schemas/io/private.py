"""Create folders for patient data: accessible only to the owner and ignored by git."""

from pathlib import Path

from schemas.io.atomic import make_folder, write_text


def make_private(folder: Path) -> None:
    """Create a folder that only its owner can access and that git ignores; an existing folder is left unchanged.

    Raises:
        OSError: the folder cannot be created.
    """
    if folder.is_dir():
        return
    make_folder(folder, mode=0o700)
    write_text(folder / ".gitignore", "*\n")
