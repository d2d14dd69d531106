"""`python -m benchmarks.pipelines`: what it costs to bring MIMIC-IV, Instacart or a PCORnet CDM to checked shards."""

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
    of_instacart,
    of_mimic,
    of_pcornet,
    run,
    size_of,
    summary,
    table_of,
    write_synthetic,
)
from benchmarks.pipelines.measure import Machine
from benchmarks.pipelines.replicate import replicate
from pipelines.inputs.pcornet import CROSSWALKS, write_crosswalks
from pipelines.sources.mimic import steps as mimic
from pipelines.sources.pcornet.databases.load_duckdb import load_duckdb
from schemas.errors import NestError
from schemas.io.outputs import empty_folder, write_json, write_text
from schemas.layout import Layout

FULL_PATIENTS, FULL_USERS, FULL_CHILDREN = 223_000, 206_209, 500_000


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table and write it beside the JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipelines")
    parser.add_argument("--mimic", type=Path, help="a small MIMIC-IV (the demo) to replicate")
    parser.add_argument("--crosswalks", type=Path, help="its crosswalks")
    parser.add_argument("--times", type=int, nargs="*", default=[20, 100], help="how often to replicate it")
    parser.add_argument(
        "--full", action="store_true", help=f"synthetic, {FULL_PATIENTS:,} patients: 60 GB of disk"
    )
    parser.add_argument("--patients", type=int, default=FULL_PATIENTS, help="of --full")
    parser.add_argument(
        "--instacart", action="store_true", help=f"synthetic, {FULL_USERS:,} users: 6 GB of disk"
    )
    parser.add_argument("--users", type=int, default=FULL_USERS, help="of --instacart")
    parser.add_argument(
        "--pcornet", action="store_true", help=f"synthetic, {FULL_CHILDREN:,} children: 14 GB of disk"
    )
    parser.add_argument("--children", type=int, default=FULL_CHILDREN, help="of --pcornet")
    parser.add_argument(
        "--work", type=Path, required=True, help="scratch folder: inputs stay there, outputs do not"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the table and the JSON")
    parser.add_argument("--name", default="etl", help="of these two files")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    machine, figures = Machine.this(), []
    try:
        for name, raw, stages in inputs(given):
            layout = Layout(given.work / "out" / "source")
            empty_folder(layout.root.parent)
            layout.root.mkdir()
            figures.append(summary(name, run(stages(layout), layout), layout, size_of(raw)))
            shutil.rmtree(layout.root.parent)
    except NestError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    report = {"machine": machine.model_dump(), "figures": figures}
    write_json(given.out / f"{given.name}.json", report)
    table = table_of(figures)
    write_text(given.out / f"{given.name}.md", f"{machine.words}\n\n{table}\n")
    print(table)
    return 0


def inputs(given: argparse.Namespace) -> list[tuple[str, Path, Callable[[Layout], Work]]]:
    """Make the inputs that are not there yet; return of each its name, where its tables lie and its stages."""
    made: list[tuple[str, Path, Callable[[Layout], Work]]] = []
    workers = str(len(os.sched_getaffinity(0)))
    for times in given.times if given.mimic else []:
        hosp = given.work / f"demo_x{times}" / "hosp"
        replicate(mimic.find_source(given.mimic, given.crosswalks).hosp, hosp, times)
        made.append((f"demo ×{times}", hosp, partial(of_mimic, hosp, given.crosswalks)))
    if given.full:
        raw = given.work / f"synthetic_{given.patients}"
        size = ["--full", "--patients", str(given.patients), "--workers", workers]
        write_synthetic(raw, "pipelines.synthetic.mimic", "mimic", *size)
        made.append(
            (
                f"synthetic, {given.patients:,} patients",
                raw / "hosp",
                partial(of_mimic, raw / "hosp", raw / "vocab"),
            )
        )
    if given.instacart:
        raw = given.work / f"instacart_{given.users}"
        write_synthetic(raw, "pipelines.synthetic.instacart", "--users", str(given.users))
        made.append((f"synthetic Instacart, {given.users:,} users", raw, partial(of_instacart, raw)))
    if given.pcornet:
        raw = given.work / f"pcornet_{given.children}"
        size = ["--children", str(given.children), "--workers", workers]
        write_synthetic(raw, "pipelines.synthetic.pcornet", *size)
        write_crosswalks(raw / CROSSWALKS)
        database, cost = raw / "cdm.duckdb", raw / "cost.json"
        if not database.exists() or database.stat().st_mtime < cost.stat().st_mtime:
            database.unlink(missing_ok=True)
            load_duckdb(raw, database)
        stages = partial(of_pcornet, database, raw / CROSSWALKS)
        made.append((f"synthetic CDM, {given.children:,} children", database, stages))
    return made


if __name__ == "__main__":
    sys.exit(main())
