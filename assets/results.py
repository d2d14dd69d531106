"""`python -m assets.results mimic`: what a run ends with: the results table, where the report lies, how to see more."""

import json
import sys
from pathlib import Path

from nest_model.report.table import results_table
from schemas.errors import NestError
from schemas.layout import Layout
from schemas.settings import Settings
from schemas.urls import shown_url


def results(source: str) -> str:
    """Return the results of the last report of a source, as text for a terminal.

    Raises:
        NestError: there is no report yet.
    """
    settings = Settings()
    folder = Layout(settings.data_folder / source).report(source)
    data = shown_url(settings.store_url or str(settings.data_folder))
    if not (folder / "metrics.json").exists():
        raise NestError(
            f"{folder / 'metrics.json'}: no results yet; run `dagster job execute -j {source}_full`."
        )
    metrics = json.loads((folder / "metrics.json").read_text())
    seed = (metrics["pretraining"] or {}).get("seed", settings.seed)
    here = "" if data == str(Path("data").resolve()) else f"NEST_DATA_DIR={data} "
    return "\n".join(
        [
            results_table(metrics),
            "",
            f"Preset:      {metrics['preset']}, seed {seed}",
            f"Data:        {data}",
            f"Report:      {folder / 'report.html'}",
            f"In the UI:   {here}make ui, then http://127.0.0.1:3000",
        ]
    )


def main() -> int:
    """Print the results of the source named on the command line; 2 where there are none."""
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m assets.results mimic | meds\n")
        return 2
    try:
        sys.stdout.write(results(sys.argv[1]) + "\n")
    except NestError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
