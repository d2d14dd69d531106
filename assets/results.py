"""`python -m assets.results mimic`: what a run ends with: the results table, where the report lies, how to see more."""

import json
import sys

from nest_model.report.table import results_table
from schemas.errors import NestError
from schemas.layout import Layout
from schemas.settings import Settings


def results(source: str) -> str:
    """Return the results of the last report of a source, as text for a terminal.

    Raises:
        NestError: there is no report yet.
    """
    folder = Layout(Settings().data_folder / source).report(source)
    metrics = folder / "metrics.json"
    if not metrics.exists():
        raise NestError(f"{metrics}: no results yet; run `make {source}_full`.")
    return "\n".join(
        [
            results_table(json.loads(metrics.read_text())),
            "",
            f"Report:      {folder / 'report.html'}",
            "In the UI:   make ui, then http://127.0.0.1:3000",
        ]
    )


def main() -> int:
    """Print the results of the source named on the command line; 2 where there are none."""
    try:
        sys.stdout.write(results(sys.argv[1]) + "\n")
    except NestError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
