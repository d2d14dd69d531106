"""The manifest of an extraction: a line for each table, written once its file is in place."""

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
    source_sha256: str  # of the source's address
    sql_sha256: str  # of the statement and its binds
    refresh: dict[str, date | None]  # HARVEST's refresh dates when the table was read
    dates_out_of_range: int  # dates made null, such as PostgreSQL's infinity


def read_manifest(folder: Path) -> dict[str, ManifestLine]:
    """Return the last line of each table; a last line that a crash cut off is ignored.

    Raises:
        InputError: a complete line cannot be read.
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
                f"{path}: line {number} was not written by an extraction. Remove the folder and extract again."
            ) from None
        manifest[line.table] = line
    return manifest


def append_line(folder: Path, line: ManifestLine) -> None:
    """Append a line durably, in place of a line that a crash may have cut off."""
    path = folder / MANIFEST
    whole = path.read_bytes().rpartition(b"\n")[0] + b"\n" if path.exists() else b""
    text = json.dumps(line.model_dump(mode="json")).encode() + b"\n"
    write_bytes(path, (whole if whole != b"\n" else b"") + text)
