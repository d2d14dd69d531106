"""How a small file is written: aside, then renamed, so that a killed run leaves the old one whole."""

import json
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Write `text`, the folder too where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_text(text)
    part.replace(path)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write `content`, indented; a number that is no number is a bug and refused."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")
