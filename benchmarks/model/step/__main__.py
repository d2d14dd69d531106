"""`python -m benchmarks.model.step`: what a training step costs on this machine, as Markdown and JSON."""

import argparse
import logging
import sys
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.model.measure import machine
from benchmarks.model.results import publish
from benchmarks.model.step.forms import FORMS, Size
from benchmarks.model.step.rounds import measure
from benchmarks.model.step.table import as_markdown

SIZES = {"d 128, L 2": Size(128, 2), "d 256, L 4": Size(256, 4)}


def main(arguments: list[str] | None = None) -> int:
    """Measure, write `<name>.md` and `<name>.json`, and print the former."""
    flags = argparse.ArgumentParser(
        prog="python -m benchmarks.model.step",
        description="A training step, padded and packed, the shortcuts added one by one.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    flags.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES), metavar="SIZE")
    flags.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS), metavar="FORM")
    flags.add_argument("--patients", type=int, default=36, help="of a step; a padded one has a micro-batch's")
    flags.add_argument("--rounds", type=int, default=5, help="each form once in every round")
    flags.add_argument("--threads", type=int, default=1)
    flags.add_argument("--out", type=Path, required=True, help="folder of what is written")
    flags.add_argument("--name", default="model", help="of the files")
    given = flags.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    torch.set_num_threads(given.threads)
    report = {
        "machine": machine(torch.device("cpu")),
        "patients": given.patients,
        "rounds": given.rounds,
        "sizes": {
            name: {
                "size": asdict(SIZES[name]),
                "forms": measure(name, SIZES[name], given.forms, given.patients, given.rounds),
            }
            for name in given.sizes
        },
    }
    publish(given.out, given.name, report, as_markdown(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
