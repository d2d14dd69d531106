"""The study: every trial of a plan, two at a time, and what the arrangements differ by, seed by seed."""

import multiprocessing
import queue
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from itertools import product
from multiprocessing.queues import Queue
from typing import Any

from benchmarks.simulation.encoders import ARRANGEMENTS, Pooled
from benchmarks.simulation.outcome import CONCENTRATIONS
from benchmarks.simulation.trial import Trial, score
from nest_model.training.device import launch_fabric
from nest_model.training.stop import die_with_parent
from nest_model.training.telemetry import Progress, Telemetry
from schemas.errors import NestError

NOISE = 0.5

_done: "Queue[int]"  # of a worker: where it tells of each step


def plan(layers: Sequence[int], sweep: Sequence[float], pooled: Pooled, seeds: int) -> list[Trial]:
    """Return the trials, both arrangements of each: every depth at σ 0.5, then the sweep's σ at the least depth."""
    levels = [*product([NOISE], layers), *product(sweep, [min(layers)])]
    parts = product(range(seeds), levels, CONCENTRATIONS, ARRANGEMENTS)
    return [
        Trial(codes, noise, depth, arrangement, pooled, seed)
        for seed, (noise, depth), codes, arrangement in parts
    ]


def run(trials: Sequence[Trial], steps: int, telemetry: Telemetry, *, workers: int) -> list[float]:
    """Return R² of each trial. Each runs on one thread, so that neither workers nor cores change a bit of it.

    Raises:
        NestError: a worker was killed.
    """
    context = multiprocessing.get_context("spawn")
    done: Queue[int] = context.Queue()
    progress = telemetry.progress("simulation", total=len(trials) * steps, unit="steps")
    pool = ProcessPoolExecutor(workers, context, initializer=_start, initargs=(done,))
    try:
        pending = [pool.submit(_score, trial, steps) for trial in trials]
        for trial, future in zip(trials, pending, strict=True):
            future.add_done_callback(partial(_tell, telemetry, trial))
        _follow(pending, done, progress)
        return [future.result() for future in pending]
    except BrokenProcessPool:
        raise NestError(
            f"simulation: one of the {workers} workers was killed, for want of memory perhaps (each takes about 1 "
            "GiB). Run again with fewer --workers; earlier files are untouched."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def summary(trials: Sequence[Trial], scores: Sequence[float]) -> list[dict[str, Any]]:
    """Return a row for each world and depth, with a list over the seeds of each arrangement's R² and of the gap.

    The gap is the interleaved less the sequential of the same seed.
    """
    rows: dict[tuple, dict[str, Any]] = {}
    for trial, r2 in zip(trials, scores, strict=True):
        where = {"codes": trial.codes, "noise": trial.noise, "layers": trial.layers}
        row = rows.setdefault(tuple(where.values()), where | {name: [] for name in ARRANGEMENTS})
        row[trial.arrangement].append(r2)
    for row in rows.values():
        pairs = zip(*(row[name] for name in ARRANGEMENTS), strict=True)
        row["gap"] = [interleaved - sequential for interleaved, sequential in pairs]
    return list(rows.values())


def _start(done: "Queue[int]") -> None:
    """Make a process ready for trials: one thread, as the tensors are tiny."""
    global _done
    die_with_parent()
    launch_fabric("cpu", threads=1)
    _done = done


def _score(trial: Trial, steps: int) -> float:
    return score(trial, steps, _done.put)


def _tell(telemetry: Telemetry, trial: Trial, future: "Future[float]") -> None:
    if not future.cancelled() and not future.exception():
        telemetry.write("trial", **asdict(trial), r2=future.result())


def _follow(pending: Sequence[Future], done: "Queue[int]", progress: Progress) -> None:
    """Tell the progress until every trial is done, or has failed, or its process has died."""
    while not all(future.done() for future in pending):
        with suppress(queue.Empty):
            progress.advance(done.get(timeout=1.0))
