"""`python -m benchmarks.model.step`: the cost of a training step on this machine, as Markdown and JSON."""

import argparse
import logging
import sys
from dataclasses import asdict

import torch

from benchmarks.model.measure import machine
from benchmarks.model.results import publish
from benchmarks.model.step.forms import FORMS, Size
from benchmarks.model.step.rounds import measure
from benchmarks.model.step.table import as_markdown
from benchmarks.results_folder import add_out

SIZES = {"d 128, L 2": Size(128, 2), "d 256, L 4": Size(256, 4)}


def main(arguments: list[str] | None = None) -> int:
    """Measure, write `<name>.md` and `<name>.json`, and print the former."""
    flags = argparse.ArgumentParser(
        prog="python -m benchmarks.model.step",
        description="A training step, padded and packed, the shortcuts added one by one.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    flags.add_argument(
        "--sizes",
        nargs="+",
        choices=SIZES,
        default=list(SIZES),
        metavar="SIZE",
        help="model sizes to measure",
    )
    flags.add_argument(
        "--forms", nargs="+", choices=FORMS, default=list(FORMS), metavar="FORM", help="forms to measure"
    )
    flags.add_argument(
        "--patients",
        type=int,
        default=36,
        help="patients per step; a padded step has those of one micro-batch",
    )
    flags.add_argument("--rounds", type=int, default=5, help="rounds, in each of which every form runs once")
    flags.add_argument("--threads", type=int, default=1, help="number of CPU threads")
    add_out(flags, "folder of the report")
    flags.add_argument("--name", default="model", help="name of the report's files")
    options = flags.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    torch.set_num_threads(options.threads)
    report = {
        "machine": machine(torch.device("cpu")),
        "patients": options.patients,
        "rounds": options.rounds,
        "sizes": {
            name: {
                "size": asdict(SIZES[name]),
                "forms": measure(name, SIZES[name], options.forms, options.patients, options.rounds),
            }
            for name in options.sizes
        },
    }
    publish(options.out, options.name, report, as_markdown(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
