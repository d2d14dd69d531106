"""The run of one point in two parts: the chain, and then what can share the machine with the next point's chain.

Of two cores the chain uses 78 % (2,000 patients), least while NEST is pretrained.
"""

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.learning_curve import chain, fresh
from benchmarks.learning_curve.schedule import CurvePoint
from benchmarks.learning_curve.scores import write_scores
from benchmarks.pipelines.measure import Machine


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
