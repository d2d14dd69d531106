"""`python -m benchmarks.pipelines.extraction`: laboratory rows into PostgreSQL and out of it, into Parquet."""

import argparse
import logging
import shutil
import signal
import sys
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.pipelines.measure import Cost, Machine, measured
from benchmarks.pipelines.postgres_server import PASSWORD, USER, postgres_server
from pipelines.sources.pcornet.databases.access import Access
from pipelines.sources.pcornet.databases.extract import extract
from pipelines.sources.pcornet.databases.load_postgres import load_postgres
from pipelines.sources.pcornet.databases.postgres import Postgres
from pipelines.synthetic.pcornet.write import write_pcornet
from schemas.errors import NestError
from schemas.io.atomic import replace_file
from schemas.io.outputs import empty_folder, write_json, write_text

CHILDREN = 2_000  # whose rows are repeated
LABS = "lab_result_cm"
PRELOAD = [
    "pipelines.sources.pcornet.databases.postgres",
    "pipelines.sources.pcornet.databases.load_postgres",
]

log = logging.getLogger("nest")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipelines.extraction", description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--work", type=Path, required=True, help="scratch folder")
    parser.add_argument("--out", type=Path, required=True, help="folder of the table and the JSON")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    machine = Machine.this()
    try:
        rows, costs = run(given.work / "extraction", given.rows)
    except NestError as error:
        log.error("error: %s", error)
        return 2
    table = table_of(rows, costs)
    report = {"machine": machine.model_dump(), "rows": rows, "stages": [cost.model_dump() for cost in costs]}
    write_json(given.out / "extraction.json", report)
    write_text(given.out / "extraction.md", f"{machine.words}\n\n{table}\n")
    log.info(table)
    return 0


def run(work: Path, rows: int) -> tuple[int, list[Cost]]:
    """Load at least so many laboratory rows, extract them, and return their number and what either cost."""
    empty_folder(work)
    write_pcornet(work / "cdm", children=CHILDREN, seed=1)
    total = repeat(work / "cdm" / f"{LABS}.parquet", rows)
    try:
        with postgres_server() as server:
            owner = Access("owner", "owner", server.dsn)
            _, loading = measured("load", load_postgres, work / "cdm", owner, preload=PRELOAD)
            server.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {USER}", "CHECKPOINT")
            source = Postgres(Access(USER, PASSWORD, server.dsn))
            _, extracting = measured("extract", extract, source, work / "out", preload=PRELOAD)
    finally:
        shutil.rmtree(work)
    return total, [loading, extracting]


def repeat(path: Path, rows: int) -> int:
    """Write a table's rows again and again, each time under ids of their own, until there are so many."""
    once, total = pq.read_table(path), 0
    ids = once["LAB_RESULT_CM_ID"].to_pylist()
    with replace_file(path) as part, pq.ParquetWriter(part, once.schema, compression="lz4") as writer:
        for copy in range(-(-rows // len(once))):
            renamed = once.set_column(0, "LAB_RESULT_CM_ID", [[f"{name}-{copy}" for name in ids]])
            writer.write_table(renamed.cast(once.schema))
            total += len(once)
    return total


def table_of(rows: int, costs: list[Cost]) -> str:
    """Return the figures as Markdown; the server's own CPU seconds are not in them."""
    lines = [
        "| stage | rows | CPU s | wall s | rows/s | rows per CPU s | peak RSS |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for cost in costs:
        spent = (
            f"{cost.cpu_s:,.1f} | {cost.wall_s:,.1f} | {rows / cost.wall_s:,.0f} | {rows / cost.cpu_s:,.0f}"
        )
        lines.append(f"| {cost.stage} | {rows:,} | {spent} | {cost.peak_rss_mib:,.0f} MiB |")
    return "\n".join(lines)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # on the way out the server is stopped too
    sys.exit(main())
