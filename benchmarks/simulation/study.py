"""The study: runs every trial of a plan, several at a time, and compares the arrangements seed by seed."""

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

from benchmarks.simulation.encoders import ARRANGEMENTS, ReadoutRows
from benchmarks.simulation.outcome import CONCENTRATIONS
from benchmarks.simulation.trial import SimulationTrial, score
from nest_model.training.device import launch_fabric
from nest_model.training.stop import die_with_parent
from nest_model.training.telemetry import Progress, Telemetry
from schemas.errors import NestError

NOISE = 0.5

_step_queue: "Queue[int]"  # in a worker: receives the number of steps done


def plan(
    layers: Sequence[int], sweep: Sequence[float], readout_rows: ReadoutRows, seeds: int
) -> list[SimulationTrial]:
    """Return the trials of both arrangements: every depth at σ 0.5, then the sweep's σ at the smallest depth."""
    levels = [*product([NOISE], layers), *product(sweep, [min(layers)])]
    parts = product(range(seeds), levels, CONCENTRATIONS, ARRANGEMENTS)
    return [
        SimulationTrial(codes, noise, depth, arrangement, readout_rows, seed)
        for seed, (noise, depth), codes, arrangement in parts
    ]


def run(trials: Sequence[SimulationTrial], steps: int, telemetry: Telemetry, *, workers: int) -> list[float]:
    """Return R² of each trial; each runs on one thread, so that the result does not depend on workers or cores.

    Raises:
        NestError: a worker was killed.
    """
    context = multiprocessing.get_context("spawn")
    step_queue: Queue[int] = context.Queue()
    progress = telemetry.progress("simulation", total=len(trials) * steps, unit="steps")
    pool = ProcessPoolExecutor(workers, context, initializer=_start, initargs=(step_queue,))
    try:
        pending = [pool.submit(_score, trial, steps) for trial in trials]
        for trial, future in zip(trials, pending, strict=True):
            future.add_done_callback(partial(_record_trial, telemetry, trial))
        _follow(pending, step_queue, progress)
        return [future.result() for future in pending]
    except BrokenProcessPool:
        raise NestError(
            f"simulation: one of the {workers} workers was killed, perhaps out of memory (each takes about 1 GiB). "
            "Run again with fewer --workers; earlier files are untouched."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def summary(trials: Sequence[SimulationTrial], scores: Sequence[float]) -> list[dict[str, Any]]:
    """Return a row for each distribution and depth: R² of each arrangement and the gap, as lists over the seeds.

    The gap is R² of the interleaved less that of the sequential arrangement with the same seed.
    """
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for trial, r2 in zip(trials, scores, strict=True):
        settings = {"codes": trial.codes, "noise": trial.noise, "layers": trial.layers}
        row = rows.setdefault(tuple(settings.values()), settings | {name: [] for name in ARRANGEMENTS})
        row[trial.arrangement].append(r2)
    for row in rows.values():
        pairs = zip(*(row[name] for name in ARRANGEMENTS), strict=True)
        row["gap"] = [interleaved_r2 - sequential_r2 for interleaved_r2, sequential_r2 in pairs]
    return list(rows.values())


def _start(step_queue: "Queue[int]") -> None:
    """Prepare a worker process for trials: one thread, since the tensors are tiny."""
    global _step_queue
    die_with_parent()
    launch_fabric("cpu", threads=1)
    _step_queue = step_queue


def _score(trial: SimulationTrial, steps: int) -> float:
    return score(trial, steps, _step_queue.put)


def _record_trial(telemetry: Telemetry, trial: SimulationTrial, future: "Future[float]") -> None:
    if not future.cancelled() and not future.exception():
        telemetry.write("trial", **asdict(trial), r2=future.result())


def _follow(pending: "Sequence[Future[float]]", step_queue: "Queue[int]", progress: Progress) -> None:
    """Report progress until every trial has ended: finished, failed, or its process died."""
    while not all(future.done() for future in pending):
        with suppress(queue.Empty):
            progress.advance(step_queue.get(timeout=1.0))
