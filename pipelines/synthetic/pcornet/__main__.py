"""`python -m pipelines.synthetic.pcornet --children N --out DIR --seed S`: writes a synthetic CDM."""

import argparse
import logging
import os
import sys
from pathlib import Path

from schemas.errors import NestError

ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "POLARS_MAX_THREADS")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.synthetic.pcornet", description=__doc__)
    parser.add_argument("--children", type=int, default=2_000, help="number of children (paper: 500,000)")
    parser.add_argument("--seed", type=int, default=42, help="random seed (default: 42)")
    parser.add_argument("--out", type=Path, required=True, help="output folder for demographic.parquet, …")
    parser.add_argument("--workers", type=int, default=1, help="number of processes; the output is the same")
    args = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    for (
        name
    ) in ONE_THREAD:  # read at import, here and in the workers; more threads would only wait for each other
        os.environ.setdefault(name, "1")
    from pipelines.synthetic.pcornet.write import write_pcornet

    try:
        rows = write_pcornet(args.out, children=args.children, seed=args.seed, workers=args.workers)
    except NestError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for table, count in rows.items():
        print(f"{table:<28}{count:>12,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
