"""How what was measured is told: a JSON file, the same as Markdown, and where it was measured."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from schemas.io.outputs import write_json, write_text


def publish(folder: Path, name: str, report: dict[str, Any], table: str) -> None:
    """Write `<name>.json` and `<name>.md`, and print the latter."""
    write_json(folder / f"{name}.json", report)
    write_text(folder / f"{name}.md", table)
    sys.stdout.write(table)


def measured_on(machine: Mapping[str, Any]) -> str:
    """Return a machine, as `measure.machine` describes it, in words."""
    threads = f", threads: {machine['threads']}" if machine["threads"] else ""
    return f"{machine['device']}{threads}, torch {machine['torch']}; load before {machine['load_1_min']:.2f}."
