"""The runs of points, each in a process of its own: two share the machine, as one leaves a quarter of it idle."""

import multiprocessing
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing import resource_tracker
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
    machine: Machine  # with its load before the first run
    keep: bool  # the folder, once scored

    def make_scores(self) -> None:
        """Run the chain, train NEST without pretraining, score all models, and delete the folder unless it is kept.

        Raises:
            NestError: a step failed or was stopped; finished steps and saved states are kept.
        """
        is_new, began = not self.folder.exists(), time.monotonic()
        chain.run(self.point, self.keys, self.folder)
        if chain.FRESH in self.keys:
            fresh.train(self.point, self.folder, self.keys[chain.FRESH])
        is_whole = is_new and set(self.keys) == set(chain.ASSET_OF_MODEL)
        seconds = round(time.monotonic() - began, 1) if is_whole else None
        write_scores(
            self.scores_folder, self.folder, self.point, self.keys, seconds=seconds, machine=self.machine
        )
        if not self.keep:
            shutil.rmtree(self.folder)


def run_all(runs: Iterable[PointRun]) -> Iterator[tuple[PointRun, float]]:
    """Run the runs, RUNS_AT_ONCE at a time, and yield each with its seconds when it has ended.

    The next run is taken from `runs` only when there is room for it, and none after one has failed. If the caller stops
    early, the running processes are killed; finished steps and saved states are kept.

    Raises:
        NestError: a run failed or was stopped; raised when the run beside it has ended.
    """
    waiting_runs, processes = iter(runs), dict[int, _PointProcess]()  # by sentinel
    failures = list[NestError]()
    resource_tracker.ensure_running()  # whose start by a process would let Ctrl-C through again
    try:
        while True:
            for run in islice(waiting_runs, 0 if failures else RUNS_AT_ONCE - len(processes)):
                with ctrl_c_held_back():  # until the new process can answer it
                    process = _PointProcess(run)
                    processes[process.sentinel] = process
            if not processes:
                break
            for sentinel in wait(list(processes)):
                process = processes.pop(sentinel)
                if failure := process.failure():
                    failures.append(failure)
                else:
                    yield process.run, process.seconds
    finally:
        _stop(processes.values())
    if failures:
        raise failures[0]


class _PointProcess:
    """The process of a run."""

    def __init__(self, run: PointRun) -> None:
        self.run, self._began = run, time.monotonic()
        # a fresh process: a forked one would have the locks and loaded libraries of this
        self._process = multiprocessing.get_context("spawn").Process(
            target=_make_scores, args=(run,), daemon=True
        )
        self._process.start()

    @property
    def sentinel(self) -> int:
        """A file descriptor that can be read once the process has ended."""
        return self._process.sentinel

    @property
    def seconds(self) -> float:
        """The seconds since it began."""
        return time.monotonic() - self._began

    def kill(self) -> None:
        """Kill it at once."""
        self._process.kill()

    def join(self) -> None:
        """Wait until it has ended."""
        self._process.join()

    def failure(self) -> NestError | None:
        """Return the error of the ended process; None if it has made the scores."""
        self.join()
        if not self._process.exitcode:
            return None
        return NestError(
            f"{self.run.point.words}: the run failed or was stopped; see its output above. Run again to continue in "
            f"{self.run.folder}."
        )


def _stop(processes: Collection[_PointProcess]) -> None:
    """Kill the processes; the kernel then kills their steps."""
    for process in processes:
        process.kill()
    for process in processes:
        process.join()


@contextmanager
def ctrl_c_held_back() -> Iterator[None]:
    """Hold Ctrl-C back until the end of a block, also in the processes that it starts, until they let it through.

    It is for the main thread alone, in which signals are handled.
    """
    previous_handler = signal.getsignal(signal.SIGINT)
    if previous_handler is signal.SIG_IGN:  # as in a shell's background: the processes ignore it too
        yield
        return
    held_back_signals = list[int]()
    signal.signal(signal.SIGINT, lambda number, _: held_back_signals.append(number))
    # a new process inherits the mask; here it is not enough, as any other thread would still take the signal
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
        signal.signal(signal.SIGINT, previous_handler)
        if held_back_signals:
            signal.raise_signal(signal.SIGINT)


def _make_scores(run: PointRun) -> None:
    """Make the scores in the process that was started for it, which ends with the benchmark."""
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        die_with_parent()
        benchmark = multiprocessing.parent_process()
        if benchmark and not benchmark.is_alive():  # it was killed while this process began
            sys.exit(1)
        run.make_scores()
    except (NestError, OSError) as error:
        sys.exit(f"{run.point.name} error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception:
        lines = traceback.format_exc().splitlines()
        sys.exit("\n".join(f"{run.point.name} {line}" for line in lines))
