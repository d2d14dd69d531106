"""The `compare` command."""

from collections.abc import Sequence
from pathlib import Path

from nest_model.comparison.compare import compare, text
from nest_model.comparison.run_folders import read_runs
from nest_model.training.telemetry import Telemetry
from schemas.io.outputs import write_json, write_text
from schemas.suppress import shown_scores


def run(*, models: Sequence[Path], out: Path, telemetry: Telemetry) -> str:
    """Write `out`/comparison.html and metrics.json, and return the comparison as text.

    Raises:
        InputError: a folder holds no model.
    """
    from nest_model.comparison.page import render  # matplotlib: only where it draws

    runs = read_runs(models)
    comparison = shown_scores(compare(runs))
    write_text(out / "comparison.html", render(comparison))
    write_json(out / "metrics.json", comparison)
    telemetry.write("result", metrics={})  # its numbers are in the text
    return text(comparison)
