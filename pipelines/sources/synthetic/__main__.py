"""`python -m pipelines.sources.synthetic mimic --patients N --seed S --out DIR`: raw input to try on."""

import argparse
import logging
import sys
from pathlib import Path

from pipelines.sources.synthetic.mimic import write_mimic
from schemas.errors import NestError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m pipelines.sources.synthetic", description=__doc__)
    sources = parser.add_subparsers(dest="source", required=True)
    mimic = sources.add_parser("mimic", help="the hosp module of MIMIC-IV, with its crosswalks")
    mimic.add_argument("--patients", type=int, default=2000)
    mimic.add_argument("--seed", type=int, default=42)
    mimic.add_argument(
        "--out", type=Path, required=True, help="OUT/hosp, OUT/vocab and OUT/planted.parquet are written"
    )
    mimic.add_argument("--tokens-per-set", type=int, default=120, help="median; real MIMIC-IV has about 228")
    asked = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        card = write_mimic(
            asked.out,
            asked.out / "planted.parquet",
            patients=asked.patients,
            seed=asked.seed,
            tokens_per_set_median=asked.tokens_per_set,
        )
    except NestError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for table, rows in card.counts.items():
        print(f"{table:<28}{rows:>12,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
