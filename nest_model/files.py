"""How a small file is written: aside, then renamed, so that a killed run or a full disk leaves the old one whole."""

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Write `text`, the folder too where there is none."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content`, the folder too where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write `content`, indented; a number that is no number is a bug and refused."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def sha256_of(path: Path) -> str:
    """Return the hash of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
