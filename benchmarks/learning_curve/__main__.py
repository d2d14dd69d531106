"""`python -m benchmarks.learning_curve`: the curve of 500 to 20,000 synthetic patients, gone on with where it was."""

import argparse
import hashlib
import logging
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import product, starmap
from pathlib import Path
from typing import Any

from benchmarks.learning_curve import chain, fresh
from benchmarks.learning_curve.curve import Standing, curve, not_learnable
from benchmarks.learning_curve.figure import draw
from benchmarks.learning_curve.page import page
from benchmarks.learning_curve.plan import HOURS, SEEDS, SIZES, Point, expected_seconds, plan
from benchmarks.learning_curve.scores import read_scores, write_scores
from benchmarks.pipelines.measure import Machine
from nest_model.report.figures import png
from nest_model.training.telemetry import Progress
from schemas.errors import NestError
from schemas.io.lock import sole_writer
from schemas.io.outputs import claim, write_bytes, write_json, write_text

NAME = "learning_curve"
log = logging.getLogger("nest")


def main(arguments: list[str] | None = None) -> int:
    """Run what is not there yet; after each run write table and figure anew, and at the end print the table."""
    given = parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    try:
        points = plan(given.sizes, given.seeds, given.hours)
        with sole_writer(given.work):
            claim(given.work)
            _run(points, given)
    except (NestError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print((given.out / f"{NAME}.md").read_text(), end="")
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the flags."""
    flags = argparse.ArgumentParser(prog="python -m benchmarks.learning_curve", description=__doc__)
    flags.add_argument("--sizes", type=_count, nargs="+", default=list(SIZES), help="patients of a run")
    flags.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS), help="of a size, the first first")
    flags.add_argument(
        "--hours", type=float, default=HOURS, help="on two cores; sizes that cost most get fewer seeds"
    )
    flags.add_argument(
        "--work", type=Path, required=True, help="folder of the scores, and of a run while it runs"
    )
    flags.add_argument("--out", type=Path, required=True, help=f"folder of {NAME}.md, .json and .png")
    flags.add_argument("--keep", action="store_true", help="keep the data and models of runs that are done")
    return flags


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError("must be a whole number from 1 on")
    return int(text)


def _run(points: Sequence[Point], given: argparse.Namespace) -> None:
    """Run each point that has no scores yet, and publish what stands after each."""
    machine = Machine.this()
    sizes, seeds = sorted({*SIZES, *given.sizes}), list(dict.fromkeys([*SEEDS, *given.seeds]))
    standing: dict[Point, Any] = {
        point: read_scores(_scores(given), point, _keys(point))
        for point in starmap(Point, product(sizes, seeds))
    }
    left = [point for point in points if len(standing[point]) < len(chain.MADE_BY)]
    _tell_plan(points, left, given)
    weights = {point: round(expected_seconds(point.size)) for point in points}
    progress = _progress(weights, left)
    if not left:  # else what an earlier run published stays until there is more
        _publish(standing, given, machine)
    for point in left:
        _run_point(point, [model for model in chain.MADE_BY if model not in standing[point]], given)
        standing[point] = read_scores(_scores(given), point, _keys(point))
        progress.advance(weights[point])
        progress.report()
        _publish(standing, given, machine)


def _tell_plan(points: Sequence[Point], left: Sequence[Point], given: argparse.Namespace) -> None:
    for size in sorted(given.sizes):
        seeds = [point.seed for point in points if point.size == size]
        fewer = f"; more do not fit into {given.hours:g} hours" if len(seeds) < len(given.seeds) else ""
        log.info("%s patients: seeds %s%s", f"{size:,}", ", ".join(map(str, seeds)), fewer)
    log.info("%d of %d runs stand already", len(points) - len(left), len(points))


def _progress(weights: Mapping[Point, int], left: Sequence[Point]) -> Progress:
    """Return a counter of the plan's seconds, by which runs of different sizes can be added up."""
    total = sum(weights.values())
    done = total - sum(weights[point] for point in left)
    return Progress(None, NAME.replace("_", " "), total, "planned seconds", done)


def _run_point(point: Point, models: Sequence[str], given: argparse.Namespace) -> None:
    folder = given.work / "runs" / point.name
    log.info("%s: %s", point.words, ", ".join(models))
    is_new, began = not folder.exists(), time.monotonic()
    keys = _keys(point)
    chain.run(point, models, folder)
    if chain.FRESH in models:
        fresh.train(point, folder, keys[chain.FRESH])
    seconds = round(time.monotonic() - began, 1) if is_new and len(models) == len(chain.MADE_BY) else None
    write_scores(_scores(given), folder, point, {model: keys[model] for model in models}, seconds=seconds)
    if not given.keep:
        shutil.rmtree(folder)


def _publish(standing: Standing, given: argparse.Namespace, machine: Machine) -> None:
    """Write table, figures and picture of what stands, whichever run made it."""
    keys = _keys(Point(0, 0))
    report = {
        "sizes": sorted({point.size for point in standing}),
        "seeds": list(dict.fromkeys(point.seed for point in standing)),
        "settings": chain.settings(),
        "code": hashlib.sha256("".join(keys.values()).encode()).hexdigest(),
        "machine": machine.words,
        "models": list(chain.MADE_BY),
        "rows": curve(standing, list(chain.MADE_BY)),
        "not_learnable": not_learnable(standing),
    }
    write_json(given.out / f"{NAME}.json", report)
    write_bytes(given.out / f"{NAME}.png", png(draw(report["rows"], report["sizes"])))
    write_text(given.out / f"{NAME}.md", page(report, f"{NAME}.png"))


def _keys(point: Point) -> dict[str, str]:
    return {model: chain.key(point, model) for model in chain.MADE_BY}


def _scores(given: argparse.Namespace) -> Path:
    return given.work / "scores"


if __name__ == "__main__":
    sys.exit(main())
