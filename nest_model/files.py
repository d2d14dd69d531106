"""Text files are written aside and renamed, so that a killed run leaves the old one whole."""

import json
from pathlib import Path
from typing import Any

from schemas.errors import NestError


def write_text(path: Path, text: str) -> None:
    """Write a file, its folder too.

    Raises:
        NestError: the disk is full or the folder cannot be written; an earlier file is untouched.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        why = error.strerror or type(error).__name__
        raise NestError(f"cannot write {path} ({why}); free space and run again.") from None


def write_json(path: Path, content: Any) -> None:
    """Write JSON; a number that is none is a bug, not a null."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")
