"""`python -m benchmarks.simulation`: the paper's simulation study, interleaved against sequential encoders."""

import argparse
import logging
import sys
from typing import get_args

from benchmarks.command_line import count
from benchmarks.results_folder import add_out
from benchmarks.simulation.encoders import ReadoutRows
from benchmarks.simulation.presentation import figure, table
from benchmarks.simulation.study import NOISE, plan, run, summary
from nest_model.report.figures import png
from nest_model.training.telemetry import Telemetry
from schemas.errors import NestError
from schemas.io.outputs import write_bytes, write_json, write_text


def main(arguments: list[str] | None = None) -> int:
    """Run the study, print its table and write it beside the JSON and the figure."""
    options = parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    trials = plan(options.layers, options.sweep, options.pooled, options.seeds)
    try:
        scores = run(trials, options.steps, Telemetry(options.out), workers=options.workers)
        rows = summary(trials, scores)
        write_json(
            options.out / "simulation.json", {"steps": options.steps, "pooled": options.pooled, "rows": rows}
        )
        write_text(options.out / "simulation.md", table(rows))
        write_bytes(options.out / "simulation.png", png(figure(rows)))
    except (NestError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(table(rows), end="")
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line; the defaults are the paper's study at one level of noise."""
    flags = argparse.ArgumentParser(prog="python -m benchmarks.simulation", description=__doc__)
    add_out(flags, "folder of simulation.md, .json and .png")
    flags.add_argument(
        "--layers",
        type=count,
        nargs="+",
        default=[2, 4],
        help="numbers of set-wise blocks, each with as many cross-set blocks",
    )
    flags.add_argument(
        "--sweep",
        type=float,
        nargs="*",
        default=[],
        help=f"further values of σ besides {NOISE}, at the smallest depth only",
    )
    flags.add_argument(
        "--pooled",
        choices=get_args(ReadoutRows),
        default="sets",
        help="rows that are pooled: the [CLS] rows of the sets, or every row",
    )
    flags.add_argument("--seeds", type=count, default=3, help="number of seeds: 0, 1, 2 …")
    flags.add_argument("--steps", type=count, default=1_500, help="steps of each training")
    flags.add_argument("--workers", type=count, default=2, help="concurrent trainings, each on one core")
    return flags


if __name__ == "__main__":
    sys.exit(main())
