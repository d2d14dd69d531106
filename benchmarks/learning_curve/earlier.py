"""Rows of an earlier curve, for the sizes that would take too long to run again."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from schemas.errors import InputError


def read_rows(file: Path, settings: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the rows of a `learning_curve.json`, each with the code and the machines it was made with.

    Raises:
        InputError: the file is no such report, or one of other settings.
    """
    try:
        report = json.loads(file.read_text())
        rows, earlier_settings = list(report["rows"]), dict(report["settings"])
    except (ValueError, KeyError, TypeError):
        raise InputError(
            f"{file} is no learning_curve.json; give one that `make bench-learning` wrote."
        ) from None
    if earlier_settings != settings:
        raise InputError(
            f"{file} was made with {_words(earlier_settings)}, and this curve has {_words(settings)}; set the same, "
            "or leave the flag out."
        )
    return rows


def with_earlier(
    rows: Sequence[dict[str, Any]], earlier_rows: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the rows and, of all other sizes, the earlier ones, by size."""
    sizes = {row["size"] for row in rows}
    kept = [row for row in earlier_rows if row["size"] not in sizes]
    return sorted([*rows, *kept], key=lambda row: row["size"])


def _words(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(settings.items()))
