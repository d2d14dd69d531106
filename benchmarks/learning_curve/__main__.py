"""`python -m benchmarks.learning_curve`: the curve from 500 to 20,000 synthetic patients; resumes where it stopped."""

import argparse
import hashlib
import logging
import math
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import product, starmap
from pathlib import Path
from typing import Any

from benchmarks.command_line import count, resumable, seed
from benchmarks.learning_curve import chain, fresh
from benchmarks.learning_curve.curve import ScoresByPoint, curve, not_learnable
from benchmarks.learning_curve.earlier import CONTRACT, read_report, with_earlier
from benchmarks.learning_curve.figure import draw
from benchmarks.learning_curve.page import page
from benchmarks.learning_curve.point_run import PointRun, run_all
from benchmarks.learning_curve.schedule import (
    HOURS,
    SEEDS,
    SIZES,
    CurvePoint,
    Pace,
    expected_seconds,
    plan,
)
from benchmarks.learning_curve.scores import read_scores
from benchmarks.pipelines.measure import Machine
from benchmarks.results_folder import add_out
from nest_model.report.figures import png
from nest_model.training.telemetry import Progress
from schemas.errors import NestError
from schemas.io.lock import sole_writer
from schemas.io.outputs import claim, write_bytes, write_json, write_text

NAME = "learning_curve"
log = logging.getLogger("nest")


@resumable
def main(arguments: list[str] | None = None) -> int:
    """Run the points without scores, update the table and the figure after each, and print the table at the end."""
    options = parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    points = plan(options.sizes, options.seeds, options.hours)
    with sole_writer(options.work):
        claim(options.work)
        _run(points, options)
    print((options.out / f"{NAME}.md").read_text(), end="")
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    flags = argparse.ArgumentParser(prog="python -m benchmarks.learning_curve", description=__doc__)
    flags.add_argument("--sizes", type=count, nargs="+", default=list(SIZES), help="numbers of patients")
    flags.add_argument(
        "--seeds",
        type=seed,
        nargs="+",
        default=list(SEEDS),
        help="seeds of each size, in the order they are run",
    )
    flags.add_argument(
        "--hours",
        type=_hours,
        default=HOURS,
        help="hours for the runs: the costliest sizes get fewer seeds, and a run that would not end is not begun",
    )
    flags.add_argument(
        "--work", type=Path, required=True, help="folder of the scores, and of each run's data while it runs"
    )
    flags.add_argument(
        "--earlier",
        type=_earlier_report,
        metavar="FILE",
        help=f"a {NAME}.json of an earlier run, whose rows stand for the sizes that have no scores now",
    )
    add_out(flags, f"folder of {NAME}.md, .json and .png")
    flags.add_argument("--keep", action="store_true", help="keep the data and models of finished runs")
    return flags


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = math.nan
    if not (0 < hours < math.inf):
        raise argparse.ArgumentTypeError("must be a number of hours above 0")
    return hours


def _earlier_report(text: str) -> dict[str, Any]:
    try:
        return read_report(Path(text), chain.settings())
    except NestError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _run(points: Sequence[CurvePoint], options: argparse.Namespace) -> None:
    """Run each point that lacks scores, several at a time, and publish all scores after each run."""
    sizes, seeds = sorted({*SIZES, *options.sizes}), list(dict.fromkeys([*SEEDS, *options.seeds]))
    scores_by_point: dict[CurvePoint, Any] = {
        point: read_scores(_scores(options), point, _keys(point))
        for point in starmap(CurvePoint, product(sizes, seeds))
    }
    pending_points = [point for point in points if len(scores_by_point[point]) < len(chain.ASSET_OF_MODEL)]
    _log_plan(points, pending_points, options)
    planned_seconds = {point: round(expected_seconds(point.size)) for point in points}
    progress = _progress(planned_seconds, pending_points)
    if not pending_points:  # otherwise the report of an earlier run stays until the next point is done
        _publish(scores_by_point, options)

    pace, machine, later_points = Pace(options.hours), Machine.this(), list[CurvePoint]()

    def runs_that_fit() -> Iterator[PointRun]:
        for point in pending_points:
            if pace.fits(point):
                yield _point_run(point, scores_by_point[point], machine, options)
            else:
                later_points.append(point)

    with closing(run_all(runs_that_fit())) as ended_runs:
        for run, seconds in ended_runs:
            pace.add(run.point, seconds)
            scores_by_point[run.point] = read_scores(_scores(options), run.point, _keys(run.point))
            progress.advance(planned_seconds[run.point])
            progress.report()
            _publish(scores_by_point, options)
    if later_points:
        log.info(
            "%d of %d runs are left: at this machine's pace they do not end within %g hours. Run again to continue.",
            len(later_points),
            len(points),
            options.hours,
        )


def _log_plan(
    points: Sequence[CurvePoint], pending_points: Sequence[CurvePoint], options: argparse.Namespace
) -> None:
    for size in sorted(options.sizes):
        seeds = [point.seed for point in points if point.size == size]
        note = f"; more do not fit into {options.hours:g} hours" if len(seeds) < len(options.seeds) else ""
        log.info("%s patients: seeds %s%s", f"{size:,}", ", ".join(map(str, seeds)), note)
    log.info("%d of %d runs are done already", len(points) - len(pending_points), len(points))


def _progress(planned_seconds: Mapping[CurvePoint, int], pending_points: Sequence[CurvePoint]) -> Progress:
    """Return a progress counter in planned seconds, so that runs of different sizes can be added up."""
    total = sum(planned_seconds.values())
    finished_seconds = total - sum(planned_seconds[point] for point in pending_points)
    return Progress(None, NAME.replace("_", " "), total, "planned seconds", finished_seconds)


def _point_run(
    point: CurvePoint, scored_models: Container[str], machine: Machine, options: argparse.Namespace
) -> PointRun:
    """Return the run of the models that have no scores yet."""
    keys = {model: key for model, key in _keys(point).items() if model not in scored_models}
    log.info("%s: %s", point.words, ", ".join(keys))
    return PointRun(point, keys, options.work / "runs" / point.name, _scores(options), machine, options.keep)


def _publish(scores_by_point: ScoresByPoint, options: argparse.Namespace) -> None:
    """Write the table, the JSON and the figure of all scores, also those of earlier runs."""
    code = hashlib.sha256("".join(_keys(CurvePoint(0, 0)).values()).encode()).hexdigest()
    run = {"code": code, "fresh_rate_factor": fresh.rate_factor()}
    rows = [row | run for row in curve(scores_by_point, list(chain.ASSET_OF_MODEL))]
    report: dict[str, Any] = {
        "contract": CONTRACT,
        "sizes": sorted({point.size for point in scores_by_point}),
        "seeds": list(dict.fromkeys(point.seed for point in scores_by_point)),
        "settings": chain.settings(),
        "models": list(chain.ASSET_OF_MODEL),
        "rows": rows,
        "not_learnable": not_learnable(scores_by_point),
    }
    if options.earlier:
        report = with_earlier(report, options.earlier)
    write_json(options.out / f"{NAME}.json", report)
    write_bytes(options.out / f"{NAME}.png", png(draw(report["rows"], report["sizes"])))
    write_text(options.out / f"{NAME}.md", page(report, f"{NAME}.png"))


def _keys(point: CurvePoint) -> dict[str, str]:
    return {model: chain.key(point, model) for model in chain.ASSET_OF_MODEL}


def _scores(options: argparse.Namespace) -> Path:
    return Path(options.work) / "scores"


if __name__ == "__main__":
    sys.exit(main())
