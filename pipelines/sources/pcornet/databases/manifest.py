"""What of an extraction is done: a line for each table, written when its file stands under its name."""

import json
from datetime import date
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from schemas.errors import InputError
from schemas.io.atomic import write_bytes
from schemas.io.outputs import MANIFEST


class ManifestLine(BaseModel):
    """One table as it was extracted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    table: str
    rows: int
    sha256: str  # of the file
    source_sha256: str  # of its address
    sql_sha256: str
    refresh: dict[str, date | None]  # HARVEST's, of the run that wrote it
    dates_out_of_range: int  # made null: Postgres's infinity


def read_manifest(folder: Path) -> dict[str, ManifestLine]:
    """Return the last line of each table; a line that a crash cut is not there.

    Raises:
        InputError: a line before the last cannot be read.
    """
    path = folder / MANIFEST
    if not path.exists():
        return {}
    lines = path.read_bytes().split(b"\n")
    manifest: dict[str, ManifestLine] = {}
    for number, text in enumerate(lines[:-1], 1):
        try:
            line = ManifestLine.model_validate_json(text)
        except ValidationError:
            raise InputError(
                f"{path}: line {number} is no line of ours. Remove the folder and extract again."
            ) from None
        manifest[line.table] = line
    return manifest


def append_line(folder: Path, line: ManifestLine) -> None:
    """Add a line for good, after what a crash may have left of another."""
    path = folder / MANIFEST
    whole = path.read_bytes().rpartition(b"\n")[0] + b"\n" if path.exists() else b""
    text = json.dumps(line.model_dump(mode="json")).encode() + b"\n"
    write_bytes(path, (whole if whole != b"\n" else b"") + text)
