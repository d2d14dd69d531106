"""Writes a benchmark's report as JSON and Markdown, and describes the machine."""

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


def describe_machine(machine: Mapping[str, Any]) -> str:
    """Return a sentence about a machine, as returned by `measure.machine`."""
    threads = f", threads: {machine['threads']}" if machine["threads"] else ""
    return f"{machine['device']}{threads}, torch {machine['torch']}; load before {machine['load_1_min']:.2f}."
