"""`python -m benchmarks.simulation`: the paper's simulation study, interleaved against sequential encoders."""

import argparse
import logging
import sys
from pathlib import Path
from typing import get_args

from benchmarks.simulation.encoders import Pooled
from benchmarks.simulation.shown import figure, table
from benchmarks.simulation.study import NOISE, plan, run, summary
from nest_model.report.figures import png
from nest_model.training.telemetry import Telemetry
from schemas.errors import NestError
from schemas.io.outputs import write_bytes, write_json, write_text


def main(arguments: list[str] | None = None) -> int:
    """Run the study, print its table and write it beside the JSON and the figure."""
    given = parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    trials = plan(given.layers, given.sweep, given.pooled, given.seeds)
    try:
        scores = run(trials, given.steps, Telemetry(given.out), workers=given.workers)
        rows = summary(trials, scores)
        write_json(
            given.out / "simulation.json", {"steps": given.steps, "pooled": given.pooled, "rows": rows}
        )
        write_text(given.out / "simulation.md", table(rows))
        write_bytes(given.out / "simulation.png", png(figure(rows)))
    except (NestError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(table(rows), end="")
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the flags; without any, the study as the paper has it, at one level of noise."""
    flags = argparse.ArgumentParser(prog="python -m benchmarks.simulation", description=__doc__)
    flags.add_argument("--out", type=Path, required=True, help="folder of simulation.md, .json and .png")
    flags.add_argument(
        "--layers", type=_count, nargs="+", default=[2, 4], help="set-wise blocks, and as many cross-set ones"
    )
    flags.add_argument(
        "--sweep", type=float, nargs="*", default=[], help=f"σ beside {NOISE}, at the least depth alone"
    )
    flags.add_argument(
        "--pooled", choices=get_args(Pooled), default="sets", help="what is read: [CLS] rows, or every row"
    )
    flags.add_argument("--seeds", type=_count, default=3, help="how many: 0, 1, 2 …")
    flags.add_argument("--steps", type=_count, default=1_500, help="of each training")
    flags.add_argument("--workers", type=_count, default=2, help="trainings at a time, each on one core")
    return flags


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError("must be a whole number from 1 on")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
