"""`python -m benchmarks.pipelines`: the cost of turning MIMIC-IV, Instacart or a PCORnet CDM into checked shards."""

import argparse
import logging
import os
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.pipelines.etl import (
    Work,
    instacart_stages,
    markdown_report,
    mimic_stages,
    pcornet_stages,
    run,
    size_of,
    summary,
    write_synthetic,
)
from benchmarks.pipelines.measure import Machine
from benchmarks.pipelines.replicate import replicate
from benchmarks.results_folder import add_out
from pipelines.inputs.pcornet import CROSSWALKS, write_crosswalks
from pipelines.sources.mimic import steps as mimic
from pipelines.sources.pcornet.databases.load_duckdb import load_duckdb
from schemas.errors import NestError
from schemas.io.outputs import empty_folder, write_json, write_text
from schemas.layout import Layout

FULL_PATIENTS, FULL_USERS, FULL_CHILDREN = 223_000, 206_209, 500_000


def main(arguments: list[str] | None = None) -> int:
    """Measure the inputs, print the table, and write it and the JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipelines")
    parser.add_argument("--mimic", type=Path, help="folder of a small MIMIC-IV (the demo) to replicate")
    parser.add_argument("--crosswalks", type=Path, help="folder of the crosswalks for --mimic")
    parser.add_argument(
        "--times", type=int, nargs="*", default=[20, 100], help="numbers of copies of --mimic"
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help=f"measure synthetic MIMIC-IV ({FULL_PATIENTS:,} patients take 60 GB of disk)",
    )
    parser.add_argument("--patients", type=int, default=FULL_PATIENTS, help="number of patients of --full")
    parser.add_argument(
        "--instacart",
        action="store_true",
        help=f"measure synthetic Instacart ({FULL_USERS:,} users take 6 GB of disk)",
    )
    parser.add_argument("--users", type=int, default=FULL_USERS, help="number of users of --instacart")
    parser.add_argument(
        "--pcornet",
        action="store_true",
        help=f"measure a synthetic PCORnet CDM ({FULL_CHILDREN:,} children take 14 GB of disk)",
    )
    parser.add_argument("--children", type=int, default=FULL_CHILDREN, help="number of children of --pcornet")
    parser.add_argument(
        "--work", type=Path, required=True, help="scratch folder, where inputs are kept and outputs deleted"
    )
    add_out(parser, "folder of the table and the JSON")
    parser.add_argument("--name", default="etl", help="name of the table and the JSON")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    machine, figures = Machine.this(), []
    try:
        for name, raw, stages in inputs(options):
            layout = Layout(options.work / "out" / "source")
            empty_folder(layout.root.parent)
            layout.root.mkdir()
            figures.append(summary(name, run(stages(layout), layout), layout, size_of(raw)))
            shutil.rmtree(layout.root.parent)
    except NestError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    report = {"machine": machine.model_dump(), "figures": figures}
    write_json(options.out / f"{options.name}.json", report)
    table = markdown_report(figures)
    write_text(options.out / f"{options.name}.md", f"{machine.words}\n\n{table}\n")
    print(table)
    return 0


def inputs(options: argparse.Namespace) -> list[tuple[str, Path, Callable[[Layout], Work]]]:
    """Create the inputs that do not exist yet; return each one's name, the path of its tables, and its stages."""
    prepared_inputs: list[tuple[str, Path, Callable[[Layout], Work]]] = []
    workers = str(len(os.sched_getaffinity(0)))
    for times in options.times if options.mimic else []:
        hosp = options.work / f"demo_x{times}" / "hosp"
        replicate(mimic.find_source(options.mimic, options.crosswalks).hosp, hosp, times)
        prepared_inputs.append((f"demo ×{times}", hosp, partial(mimic_stages, hosp, options.crosswalks)))
    if options.full:
        raw = options.work / f"synthetic_{options.patients}"
        size = ["--full", "--patients", str(options.patients), "--workers", workers]
        write_synthetic(raw, "pipelines.synthetic", "mimic", *size)
        prepared_inputs.append(
            (
                f"synthetic, {options.patients:,} patients",
                raw / "hosp",
                partial(mimic_stages, raw / "hosp", raw / "vocab"),
            )
        )
    if options.instacart:
        raw = options.work / f"instacart_{options.users}"
        write_synthetic(raw, "pipelines.synthetic.instacart", "--users", str(options.users))
        prepared_inputs.append(
            (f"synthetic Instacart, {options.users:,} users", raw, partial(instacart_stages, raw))
        )
    if options.pcornet:
        raw = options.work / f"pcornet_{options.children}"
        size = ["--children", str(options.children), "--workers", workers]
        write_synthetic(raw, "pipelines.synthetic.pcornet", *size)
        write_crosswalks(raw / CROSSWALKS)
        database, cost = raw / "cdm.duckdb", raw / "cost.json"
        if not database.exists() or database.stat().st_mtime < cost.stat().st_mtime:
            database.unlink(missing_ok=True)
            load_duckdb(raw, database)
        stages = partial(pcornet_stages, database, raw / CROSSWALKS)
        prepared_inputs.append((f"synthetic CDM, {options.children:,} children", database, stages))
    return prepared_inputs


if __name__ == "__main__":
    sys.exit(main())
