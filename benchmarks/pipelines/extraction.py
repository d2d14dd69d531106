"""`python -m benchmarks.pipelines.extraction`: loads laboratory rows into PostgreSQL and extracts them into Parquet."""

import argparse
import logging
import shutil
import signal
import sys
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.pipelines.measure import Cost, Machine, measure_stage
from benchmarks.pipelines.postgres_server import PASSWORD, USER, postgres_server
from benchmarks.results_folder import add_out
from pipelines.sources.pcornet.databases.access import Access
from pipelines.sources.pcornet.databases.extract import extract
from pipelines.sources.pcornet.databases.load_postgres import load_postgres
from pipelines.sources.pcornet.databases.postgres import Postgres
from pipelines.synthetic.pcornet.write import write_pcornet
from schemas.errors import NestError
from schemas.io.atomic import replace_file
from schemas.io.outputs import empty_folder, write_json, write_text

CHILDREN = 2_000  # whose rows are copied
LABS = "lab_result_cm"
PRELOAD = [
    "pipelines.sources.pcornet.databases.postgres",
    "pipelines.sources.pcornet.databases.load_postgres",
]

log = logging.getLogger("nest")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipelines.extraction", description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000, help="least number of laboratory rows")
    parser.add_argument("--work", type=Path, required=True, help="scratch folder")
    add_out(parser, "folder of the table and the JSON")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    machine = Machine.this()
    try:
        rows, costs = run(options.work / "extraction", options.rows)
    except NestError as error:
        log.error("error: %s", error)
        return 2
    table = markdown_report(rows, costs)
    report = {"machine": machine.model_dump(), "rows": rows, "stages": [cost.model_dump() for cost in costs]}
    write_json(options.out / "extraction.json", report)
    write_text(options.out / "extraction.md", f"{machine.words}\n\n{table}\n")
    log.info(table)
    return 0


def run(work: Path, rows: int) -> tuple[int, list[Cost]]:
    """Load at least this many laboratory rows, extract them, and return their number and both costs."""
    empty_folder(work)
    write_pcornet(work / "cdm", children=CHILDREN, seed=1)
    total = repeat(work / "cdm" / f"{LABS}.parquet", rows)
    try:
        with postgres_server() as server:
            owner = Access("owner", "owner", server.dsn)
            _, loading = measure_stage("load", load_postgres, work / "cdm", owner, preload=PRELOAD)
            server.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {USER}", "CHECKPOINT")
            source = Postgres(Access(USER, PASSWORD, server.dsn))
            _, extracting = measure_stage("extract", extract, source, work / "out", preload=PRELOAD)
    finally:
        shutil.rmtree(work)
    return total, [loading, extracting]


def repeat(path: Path, rows: int) -> int:
    """Copy a table's rows, with new ids in each copy, until there are at least `rows`; return their number."""
    rows_to_copy, total = pq.read_table(path), 0
    ids = rows_to_copy["LAB_RESULT_CM_ID"].to_pylist()
    with replace_file(path) as part, pq.ParquetWriter(part, rows_to_copy.schema, compression="lz4") as writer:
        for copy in range(-(-rows // len(rows_to_copy))):
            copied_rows = rows_to_copy.set_column(0, "LAB_RESULT_CM_ID", [[f"{name}-{copy}" for name in ids]])
            writer.write_table(copied_rows.cast(rows_to_copy.schema))
            total += len(rows_to_copy)
    return total


def markdown_report(rows: int, costs: list[Cost]) -> str:
    """Return the figures as Markdown, without the CPU seconds of the server itself."""
    lines = [
        "| stage | rows | CPU s | wall s | rows/s | rows per CPU s | peak RSS |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for cost in costs:
        cells = (
            f"{cost.cpu_s:,.1f} | {cost.wall_s:,.1f} | {rows / cost.wall_s:,.0f} | {rows / cost.cpu_s:,.0f}"
        )
        lines.append(f"| {cost.stage} | {rows:,} | {cells} | {cost.peak_rss_mib:,.0f} MiB |")
    return "\n".join(lines)


if __name__ == "__main__":
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # by way of SystemExit, so that the server is stopped too
    sys.exit(main())
