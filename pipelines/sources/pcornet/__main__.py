"""Extract a CDM from a database or a dump, or load a dump into a database.

`python -m pipelines.sources.pcornet extract | load`
"""

import argparse
import logging
import sys
from pathlib import Path

from pipelines.sources.pcornet.databases.access import Access
from pipelines.sources.pcornet.databases.connect import source_named
from pipelines.sources.pcornet.databases.extract import extract
from schemas.errors import InputError, NestError


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.sources.pcornet", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    out = commands.add_parser(
        "extract", help="write a CDM as Parquet files; a second run continues where the first stopped"
    )
    out.add_argument(
        "--from",
        dest="source",
        required=True,
        help="source: postgres, oracle, a DuckDB file, or a folder of Parquet or CSV files",
    )
    out.add_argument("--out", type=Path, required=True, help="folder to write the Parquet files to")
    out.add_argument(
        "--patients", nargs=2, metavar=("FROM", "BELOW"), help="range of PATIDs to read, for a trial run"
    )
    into = commands.add_parser("load", help="load Parquet files into PostgreSQL or a new DuckDB file")
    into.add_argument("--folder", type=Path, required=True, help="folder of the Parquet files, one per table")
    into.add_argument("--into", required=True, help="target: postgres, or the DuckDB file to create")
    into.add_argument(
        "--replace", action="store_true", help="drop the CDM's tables that PostgreSQL already has"
    )
    for command in (out, into):
        command.add_argument(
            "--allow-plaintext", action="store_true", help="allow connections to another host without TLS"
        )
    args = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        for table, rows in _rows(args).items():
            print(f"{table:<28}{rows:>12,}")
    except NestError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _rows(args: argparse.Namespace) -> dict[str, int]:
    if args.command == "load" and args.into == "oracle":
        raise InputError(
            "--into oracle: loading into Oracle is not supported. Name postgres, or a DuckDB file to create."
        )
    if args.command == "load" and args.into != "postgres":
        from pipelines.sources.pcornet.databases.load_duckdb import load_duckdb

        return load_duckdb(args.folder, Path(args.into))
    if args.command == "load":
        from pipelines.sources.pcornet.databases.load_postgres import load_postgres

        return load_postgres(
            args.folder,
            Access.from_environment(),
            allow_plaintext=args.allow_plaintext,
            replace=args.replace,
        )
    source = source_named(args.source, allow_plaintext=args.allow_plaintext)
    manifest = extract(source, args.out, patients=tuple(args.patients) if args.patients else None)
    return {name: line.rows for name, line in manifest.items()}


if __name__ == "__main__":
    sys.exit(main())
