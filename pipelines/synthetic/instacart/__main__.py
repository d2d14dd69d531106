"""`python -m pipelines.synthetic.instacart --users N --seed S --out DIR`: writes the raw files."""

import argparse
import logging
import sys
from pathlib import Path

from pipelines.synthetic.instacart.write import write_instacart
from schemas.errors import NestError


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.synthetic.instacart", description=__doc__)
    parser.add_argument("--users", type=int, default=2_000, help="number of users (real Instacart: 206,209)")
    parser.add_argument("--seed", type=int, default=42, help="random seed (default: 42)")
    parser.add_argument("--gzip", action="store_true", help="write csv.gz instead of csv")
    parser.add_argument(
        "--out", type=Path, required=True, help="output folder for orders, order_products__*, …"
    )
    args = parser.parse_args(arguments)
    if args.users < 1:
        parser.error("--users must be at least 1.")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        rows = write_instacart(args.out, users=args.users, seed=args.seed, gzip_files=args.gzip)
    except NestError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for table, count in rows.items():
        print(f"{table:<28}{count:>12,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
