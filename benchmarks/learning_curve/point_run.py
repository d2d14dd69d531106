"""The runs of points, each in a process of its own: two share the machine, as one leaves a quarter of it idle."""

import multiprocessing
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import wait
from pathlib import Path

from benchmarks.learning_curve import chain, fresh
from benchmarks.learning_curve.schedule import RUNS_AT_ONCE, CurvePoint
from benchmarks.learning_curve.scores import write_scores
from benchmarks.pipelines.measure import Machine
from nest_model.training.stop import die_with_parent
from schemas.errors import NestError


@dataclass(frozen=True)
class PointRun:
    """A run that makes the scores of some models at one point."""

    point: CurvePoint
    keys: Mapping[str, str]  # by model
    folder: Path  # of its tables and models
    scores_folder: Path
    keep: bool  # the folder, once scored

    def make_scores(self) -> None:
        """Run the chain, train NEST without pretraining, score all models, and delete the folder unless it is kept.

        Raises:
            NestError: a step failed or was stopped; what is finished, and the state of what is not, are kept.
        """
        is_new, machine, began = not self.folder.exists(), Machine.this(), time.monotonic()
        chain.run(self.point, self.keys, self.folder)
        if chain.FRESH in self.keys:
            fresh.train(self.point, self.folder, self.keys[chain.FRESH])
        is_whole = is_new and set(self.keys) == set(chain.ASSET_OF_MODEL)
        seconds = round(time.monotonic() - began, 1) if is_whole else None
        write_scores(self.scores_folder, self.folder, self.point, self.keys, seconds=seconds, machine=machine)
        if not self.keep:
            shutil.rmtree(self.folder)


def run_all(runs: Iterable[PointRun]) -> Iterator[tuple[PointRun, float]]:
    """Run the runs, RUNS_AT_ONCE at a time, and yield each with its seconds when it has ended.

    The next run is taken from `runs` only when there is room for it. Whatever ends this, it ends the runs that are not
    over; what they have finished, and the state of what they have not, are kept.

    Raises:
        NestError: a run failed or was stopped.
    """
    waiting_runs, processes = iter(runs), dict[int, _PointProcess]()  # by what tells that a process has ended
    try:
        while True:
            for run in islice(waiting_runs, RUNS_AT_ONCE - len(processes)):
                process = _PointProcess(run)
                processes[process.sentinel] = process
            if not processes:
                return
            for sentinel in wait(list(processes)):
                process = processes.pop(sentinel)
                process.refuse_failed()
                yield process.run, process.seconds
    finally:
        for process in processes.values():
            process.stop()


class _PointProcess:
    """The process of a run."""

    def __init__(self, run: PointRun) -> None:
        self.run, self._began = run, time.monotonic()
        # a fresh process: a forked one would have the locks and loaded libraries of this
        self._process = multiprocessing.get_context("spawn").Process(target=_make_scores, args=(run,))
        self._process.start()

    @property
    def sentinel(self) -> int:
        """A file descriptor that can be read once the process has ended."""
        return self._process.sentinel

    @property
    def seconds(self) -> float:
        """The seconds since it began."""
        return time.monotonic() - self._began

    def refuse_failed(self) -> None:
        """Check, once the process has ended, that it has made the scores.

        Raises:
            NestError: it has not.
        """
        self._process.join()
        if self._process.exitcode:
            raise NestError(
                f"{self.run.point.words}: the run failed or was stopped; see its output above. Run again to continue "
                f"in {self.run.folder}."
            )

    def stop(self) -> None:
        """End the process and its steps."""
        self._process.kill()
        self._process.join()


def _make_scores(run: PointRun) -> None:
    die_with_parent()
    try:
        run.make_scores()
    except (NestError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
