"""Write the page of evidence: `metrics.json` and the page drawn from it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nest_model.evidence.results import evidence
from nest_model.evidence.rows import REFERENCE, rows_by_name
from nest_model.training.telemetry import Telemetry
from schemas.errors import NestError
from schemas.io.outputs import write_json, write_text
from schemas.layout import Layout
from schemas.near_names import near_name
from schemas.suppress import shown_scores


def write_evidence(
    *, root: Path, rows: Sequence[str], tasks: Sequence[str], out: Path, telemetry: Telemetry
) -> None:
    """Write `out`/metrics.json and `out`/report.html on these rows and cohorts of a source.

    Args:
        root: the folder of the source.

    Raises:
        NestError: there is no such row or cohort.
    """
    from nest_model.evidence.page import render  # matplotlib: only where it draws

    table = rows_by_name()
    for name in rows:
        if name not in table:
            raise NestError(
                f"row '{name}' is unknown{near_name(name, table)}; choose from {', '.join(table)}."
            )
    cohorts = sorted(path.parent.name for path in (Layout(root).tables / "cohorts").glob("*/labels.parquet"))
    for name in tasks:
        if name not in cohorts:
            raise NestError(
                f"{root}: cohort '{name}' has no labels here{near_name(name, cohorts)}; there are labels of "
                f"{', '.join(cohorts) or 'none'}."
            )
    metrics = shown_scores(evidence(Layout(root), [table[name] for name in rows], tasks))
    write_text(out / "report.html", render(metrics))
    write_json(out / "metrics.json", metrics)
    telemetry.result(_result_numbers(metrics))


def _result_numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return what the result line says: the number of scores on the page, and those of NEST."""
    scores = {
        (task, row): cell["auroc"]["value"]
        for task, content in metrics["tasks"].items()
        for row, cell in content["cells"].items()
        if cell["auroc"]["value"] is not None
    }
    nest_scores = {f"{task}_auroc": value for (task, row), value in scores.items() if row == REFERENCE}
    return {"scores": len(scores), **nest_scores}
