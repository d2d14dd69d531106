"""An earlier report of the curve, whose rows stand for the sizes that would take too long to run again."""

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.learning_curve.curve import SEED_OF_CHOICES
from schemas.errors import InputError

CONTRACT = "learning_curve/5"
"""The form of a report; those of versions 3 and 4 are read too, one of another is refused."""


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
    if isinstance(report, dict) and report.get("contract") == "learning_curve/3":
        report |= {"contract": "learning_curve/4", "rows": [_from_version_3(row) for row in report["rows"]]}
    if isinstance(report, dict) and report.get("contract") == "learning_curve/4":
        # NEST without pretraining had no rate of its own then
        report |= {
            "contract": CONTRACT,
            "rows": [dict(row) | {"fresh_rate_factor": 1.0} for row in report["rows"]],
        }
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


def _from_version_3(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with the differences that version 3 lacks, without intervals, and without the pretraining."""

    def nest_less(model: str, *, left_out_seed: int | None = None) -> dict[str, Any]:
        scores = [scores["models"] for scores in row["by_seed"] if scores["seed"] != left_out_seed]
        values = [each["nest"]["value"] - each[model]["value"] for each in scores]
        return {
            "value": round(fmean(values), 6) if values else None,
            "low": None,
            "high": None,
            "note": "",
            "sd": round(stdev(values), 6) if len(values) > 1 else None,
        }

    return dict(row) | {
        "nest_less_lightgbm_other_seeds": nest_less("lightgbm", left_out_seed=SEED_OF_CHOICES),
        "nest_less": {model: nest_less(model) for model in ("without_pretraining", "probe")},
        "pretraining": {},
    }


def _words(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(settings.items()))
