"""Which training came to its end: a record beside its model, hidden as it is of no result, by which a rerun goes on."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from schemas.hashing import file_sha256
from schemas.io import atomic

RECORD = ".finished.json"


def note_finished(out: Path, key: str, files: Sequence[Path]) -> None:
    """Record that the training of this key wrote these files, and all of them."""
    hashes = {os.path.relpath(file, out): file_sha256(file) for file in files}
    atomic.write_text(out / RECORD, json.dumps({"key": key, "files": hashes}, sort_keys=True) + "\n")


def is_finished(out: Path, key: str) -> bool:
    """Say whether the training of this key came to its end, and every file it wrote is as it was."""
    try:
        record = json.loads((out / RECORD).read_bytes())
        return record["key"] == key and all(
            file_sha256(out / name) == sha256 for name, sha256 in record["files"].items()
        )
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
    ):  # none, a damaged one, or a file is gone
        return False
