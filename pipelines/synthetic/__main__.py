"""`python -m pipelines.synthetic mimic --patients N --out DIR [--full] [--workers N]`: writes a synthetic MIMIC-IV."""

import argparse
import logging
import os
import sys
from pathlib import Path

from schemas.errors import NestError

ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "POLARS_MAX_THREADS")


def main() -> int:
    args = _parser().parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    for (
        name
    ) in ONE_THREAD:  # read at import, here and in the workers; more threads would only wait for each other
        os.environ.setdefault(name, "1")
    from pipelines.synthetic.mimic.write import write_mimic

    try:
        card = write_mimic(
            args.out,
            args.out / "planted.parquet",
            patients=args.patients,
            seed=args.seed,
            tokens_per_set_median=args.tokens_per_set,
            full=args.full,
            workers=args.workers,
        )
    except NestError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for table, rows in card.counts.items():
        print(f"{table:<28}{rows:>12,}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pipelines.synthetic", description=__doc__)
    sources = parser.add_subparsers(dest="source", required=True)
    mimic = sources.add_parser("mimic", help="write the hosp module of MIMIC-IV with its crosswalks")
    mimic.add_argument(
        "--patients", type=int, default=2000, help="number of patients with a stay (real MIMIC-IV: 223,000)"
    )
    mimic.add_argument("--seed", type=int, default=42, help="random seed (default: 42)")
    mimic.add_argument(
        "--out", type=Path, required=True, help="output folder for hosp, vocab and planted.parquet"
    )
    volume = mimic.add_mutually_exclusive_group()
    volume.add_argument(
        "--tokens-per-set", type=int, default=120, help="median tokens per set (real MIMIC-IV: about 228)"
    )
    volume.add_argument(
        "--full",
        action="store_true",
        help="write as many rows of each table per patient as the real MIMIC-IV v3.1",
    )
    mimic.add_argument(
        "--workers",
        type=int,
        default=1,
        help="number of processes; each needs more memory, the output is the same",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
