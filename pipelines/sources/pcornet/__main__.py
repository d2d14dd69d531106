"""`python -m pipelines.sources.pcornet extract | load`: a CDM out of a database or dump, or a dump into a database."""

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
        "extract", help="a CDM as Parquet files; run again, it goes on where it stopped"
    )
    out.add_argument(
        "--from",
        dest="where",
        required=True,
        help="postgres, oracle, a DuckDB file, or a folder of Parquet or CSV",
    )
    out.add_argument("--out", type=Path, required=True)
    out.add_argument(
        "--patients", nargs=2, metavar=("FROM", "BELOW"), help="PATIDs between which to read, for a trial"
    )
    into = commands.add_parser("load", help="a dump of Parquet files into PostgreSQL or a DuckDB file")
    into.add_argument("--folder", type=Path, required=True)
    into.add_argument("--into", required=True, help="postgres, or the DuckDB file to make")
    into.add_argument(
        "--replace", action="store_true", help="of postgres: drop the CDM's tables that are there already"
    )
    for command in (out, into):
        command.add_argument("--allow-plaintext", action="store_true", help="no TLS to another host")
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
            "--into oracle: nothing is loaded into Oracle. Name postgres, or a DuckDB file to make."
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
    source = source_named(args.where, allow_plaintext=args.allow_plaintext)
    manifest = extract(source, args.out, patients=tuple(args.patients) if args.patients else None)
    return {name: line.rows for name, line in manifest.items()}


if __name__ == "__main__":
    sys.exit(main())
