"""The run of one point in two parts: the chain, and the rest, which shares the machine with the next point's chain.

With 1,000 patients a chain keeps two cores 76 % busy, and less while NEST is pretrained.
"""

import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

from benchmarks.learning_curve import chain, fresh
from benchmarks.learning_curve.schedule import CurvePoint
from benchmarks.learning_curve.scores import write_scores
from benchmarks.pipelines.measure import Machine
from nest_model.training.stop import die_with_parent
from schemas.errors import NestError

_LOWEST_PRIORITY = 19


@dataclass(frozen=True)
class ChainCost:
    """What the first part took: its seconds, None where it resumed an earlier run, and the machine before it."""

    seconds: float | None
    machine: Machine


@dataclass(frozen=True)
class PointRun:
    """A run that makes the scores of some models at one point."""

    point: CurvePoint
    keys: Mapping[str, str]  # by model
    folder: Path  # of its tables and models
    scores_folder: Path
    keep: bool  # the folder, once scored

    def run_chain(self) -> ChainCost:
        """Materialize the assets up to the predictions of all models but NEST without pretraining.

        Raises:
            NestError: the run failed or was stopped; its finished steps are kept.
        """
        is_new, machine, began = not self.folder.exists(), Machine.this(), time.monotonic()
        chain.run(self.point, self.keys, self.folder)
        is_whole = is_new and set(self.keys) == set(chain.ASSET_OF_MODEL)
        return ChainCost(time.monotonic() - began if is_whole else None, machine)

    def finish(self, cost: ChainCost) -> None:
        """Train NEST without pretraining, score all models, and delete the folder unless it is kept.

        Raises:
            NestError: a training failed or was stopped; its saved state is kept.
        """
        began = time.monotonic()
        if chain.FRESH in self.keys:
            fresh.train(self.point, self.folder, self.keys[chain.FRESH])
        seconds = None if cost.seconds is None else round(cost.seconds + time.monotonic() - began, 1)
        write_scores(
            self.scores_folder, self.folder, self.point, self.keys, seconds=seconds, machine=cost.machine
        )
        if not self.keep:
            shutil.rmtree(self.folder)


class Rest:
    """The second part of a run, in a process of the lowest priority."""

    def __init__(self, run: PointRun, cost: ChainCost) -> None:
        self.run = run
        # a fresh process: a forked one would have the locks and loaded libraries of this
        self._process: BaseProcess = multiprocessing.get_context("spawn").Process(
            target=_finish, args=(run, cost)
        )
        self._process.start()

    def wait(self) -> None:
        """Wait for the end.

        Raises:
            NestError: a training failed or was stopped; its saved state is kept.
        """
        self._process.join()
        if self._process.exitcode:
            raise NestError(
                f"{self.run.point.words}: NEST without pretraining was not trained, or not scored; see the output "
                f"above. Run again to continue in {self.run.folder}."
            )

    def stop(self) -> None:
        """End the process and its trainings, whose saved state is kept; nothing happens if it has ended."""
        self._process.kill()
        self._process.join()


def _finish(run: PointRun, cost: ChainCost) -> None:
    die_with_parent()
    os.nice(_LOWEST_PRIORITY)
    try:
        run.finish(cost)
    except (NestError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
