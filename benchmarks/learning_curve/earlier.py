"""An earlier report of the curve, whose rows stand for the sizes that would take too long to run again."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from schemas.errors import InputError

CONTRACT = "learning_curve/4"
"""The form of a report; another one has other rows, and is refused."""


def read_report(file: Path, settings: Mapping[str, str]) -> dict[str, Any]:
    """Return an earlier report of a curve with the same settings.

    Raises:
        InputError: the file cannot be read, is no report of this form, or one of other settings.
    """
    try:
        report = json.loads(file.read_text())
    except OSError as error:
        raise InputError(f"{file}: this file cannot be read ({error.strerror}).") from None
    except ValueError:
        report = None
    if not isinstance(report, dict) or report.get("contract") != CONTRACT:
        raise InputError(
            f"{file}: this is no report of the learning curve, or one of an earlier version; give a "
            "learning_curve.json that this version wrote."
        )
    if report["settings"] != settings:
        raise InputError(
            f"{file}: this curve was made with {_words(report['settings'])}, the new one would be with "
            f"{_words(settings)}; set the same variables, or leave --earlier out."
        )
    return report


def with_earlier(report: Mapping[str, Any], earlier: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report with what an earlier one knows of the sizes that have no row in it."""
    sizes = {row["size"] for row in report["rows"]}

    def both(part: str) -> list[dict[str, Any]]:
        return [*report[part], *(entry for entry in earlier[part] if entry["size"] not in sizes)]

    return {
        **report,
        "sizes": sorted({*report["sizes"], *earlier["sizes"]}),
        "seeds": list(dict.fromkeys([*report["seeds"], *earlier["seeds"]])),
        "rows": sorted(both("rows"), key=lambda row: row["size"]),
        "not_learnable": both("not_learnable"),
    }


def _words(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(settings.items()))
