"""`python -m pipelines.benchmarks`: what it costs to bring raw MIMIC-IV files to checked shards."""

import argparse
import json
import logging
import shutil
import sys
from pathlib import Path

from pipelines import mimic
from pipelines.benchmarks.etl import size_of, stages, summary, table_of, write_full
from pipelines.benchmarks.measure import Machine
from pipelines.benchmarks.replicate import replicate
from schemas.errors import NestError
from schemas.layout import Layout

FULL_PATIENTS = 223_000


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table and write it beside the JSON."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.benchmarks")
    parser.add_argument("--mimic", type=Path, help="a small MIMIC-IV (the demo) to replicate")
    parser.add_argument("--crosswalks", type=Path, help="its crosswalks")
    parser.add_argument("--times", type=int, nargs="*", default=[20, 100], help="how often to replicate it")
    parser.add_argument(
        "--full", action="store_true", help=f"synthetic, {FULL_PATIENTS:,} patients: 60 GB of disk"
    )
    parser.add_argument("--patients", type=int, default=FULL_PATIENTS, help="of --full")
    parser.add_argument(
        "--work", type=Path, required=True, help="scratch folder: inputs stay there, outputs do not"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of etl.md and etl.json")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    machine, figures = Machine.this(), []
    try:
        for name, hosp, crosswalks in inputs(given):
            layout = Layout(given.work / f"out_{hosp.parent.name}" / "mimic")
            shutil.rmtree(layout.root.parent, ignore_errors=True)
            layout.root.mkdir(parents=True)
            rows, costs = stages(hosp, crosswalks, layout)
            figures.append(summary(name, rows, costs, layout, size_of(hosp)))
            shutil.rmtree(layout.root.parent)
    except NestError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    table = table_of(figures)
    given.out.mkdir(parents=True, exist_ok=True)
    report = {"machine": machine.model_dump(), "figures": figures}
    (given.out / "etl.json").write_text(json.dumps(report, indent=2) + "\n")
    (given.out / "etl.md").write_text(f"{machine.model_dump_json()}\n\n{table}\n")
    print(table)
    return 0


def inputs(given: argparse.Namespace) -> list[tuple[str, Path, Path]]:
    """Make the inputs that are not there yet; return name, hosp, crosswalks of each."""
    made = []
    for times in given.times if given.mimic else []:
        hosp = given.work / f"demo_x{times}" / "hosp"
        replicate(mimic.find_source(given.mimic, given.crosswalks).hosp, hosp, times)
        made.append((f"demo ×{times}", hosp, given.crosswalks))
    if given.full:
        raw = given.work / f"synthetic_{given.patients}"
        write_full(raw, given.patients)
        made.append((f"synthetic, {given.patients:,} patients", raw / "hosp", raw / "vocab"))
    return made


if __name__ == "__main__":
    sys.exit(main())
