"""Runs of the learning curve's points without a chain, in the processes that real ones have.

As a command it is the benchmark with such runs.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from benchmarks.learning_curve import __main__ as benchmark
from benchmarks.learning_curve.chain import COHORTS
from benchmarks.learning_curve.point_run import PointRun
from benchmarks.learning_curve.schedule import CurvePoint
from benchmarks.learning_curve.scores import CurveScores, TaskScore, path_of
from benchmarks.pipelines.measure import Machine
from schemas.errors import NestError

MACHINE = Machine(cpu="a chip", cores=2, memory_gib=24.0, python="3.11.7", load_1_min=0.25)
LEVELS = {
    "nest": 0.8,
    "probe": 0.77,
    "without_pretraining": 0.7,
    "lightgbm": 0.75,
    "logistic": 0.74,
    "best": 0.9,
}
PRETRAINING_SCORES = {
    "mlm": 4.5,
    "mlm_constant": 6.7,
    "mlm_mixture": 6.2,
    "msm": 2.375,
    "msm_constant": 2.5,
    "msm_mixture": 2.44,
    "ndcg_at_10": 0.42,
    "ndcg_at_10_constant": 0.39,
    "ndcg_at_10_mixture": 0.44,
}
FIRST_SEED, SECOND_SEED, THIRD_SEED, FAILING_SEED, LATER_SEED, ENDLESS_SEED = 42, 123, 456, 13, 14, 666
EVENT_BEFORE_END = {
    FIRST_SEED: f"{SECOND_SEED} begins",
    SECOND_SEED: f"{THIRD_SEED} begins",
    FAILING_SEED: f"{LATER_SEED} begins",
    LATER_SEED: f"{FAILING_SEED} fails",
    ENDLESS_SEED: "the sea runs dry",
}
"""By a run's seed: what must have happened before it ends."""


def fake_scores(point: CurvePoint, model: str, *, difference: float = 0.0, **changes) -> CurveScores:
    """Return scores at the model's level, with resamples that have the same noise for every model."""
    noise = np.random.default_rng(point.seed).normal(0, 0.02, 200)
    auroc = LEVELS[model] + difference
    task = TaskScore(auroc=auroc, resampled=list(auroc + noise), rows=30, patients=20, positives=12)
    fields = {
        "size": point.size,
        "seed": point.seed,
        "model": model,
        "key": f"key of {model}",
        "data": "data",
    }
    tasks = dict.fromkeys(COHORTS, task)
    about_run = {"pretraining": PRETRAINING_SCORES, "seconds": 100.0, "machine": MACHINE}
    return CurveScores(**{**fields, "tasks": tasks, **about_run, **changes})


def store(folder: Path, point: CurvePoint, scores: CurveScores) -> Path:
    path = path_of(folder, point, scores.model)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(scores.model_dump_json())
    return path


def store_all(run: PointRun) -> None:
    """Store scores of all models of a run."""
    for model, key in run.keys.items():
        store(run.scores_folder, run.point, fake_scores(run.point, model, key=key))


@dataclass(frozen=True)
class RunWithoutChain(PointRun):
    """A run that notes when it begins and ends, and whose scores are not measured."""

    def make_scores(self) -> None:
        self._note(f"{self.point.seed} begins as process {os.getpid()}")
        self._wait_for(EVENT_BEFORE_END.get(self.point.seed, ""))
        if self.point.seed == LATER_SEED:
            self._wait_until_gone(FAILING_SEED)
        if self.point.seed == FAILING_SEED:
            self._note(f"{self.point.seed} fails")
            raise NestError("a step failed.")
        store_all(self)
        self._note(f"{self.point.seed} ends")

    def _note(self, event: str) -> None:
        with events_file(self.folder.parent).open("a") as events:
            events.write(f"{event}\n")

    def _wait_for(self, event: str) -> None:
        deadline = time.monotonic() + 120
        while event not in events_file(self.folder.parent).read_text():
            if time.monotonic() > deadline:
                raise NestError(f"{event}: this did not happen.")
            time.sleep(0.02)

    def _wait_until_gone(self, seed: int) -> None:
        """Wait until the benchmark has seen the end of another run's process."""
        events = events_file(self.folder.parent).read_text().splitlines()
        (process,) = [int(event.split()[-1]) for event in events if event.startswith(f"{seed} begins as")]
        with suppress(ProcessLookupError):
            while True:
                os.kill(process, 0)
                time.sleep(0.02)


def events_file(folder: Path) -> Path:
    """Return the file in which the runs of a folder note what happens."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "events.txt"


def use_runs_without_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command make runs without a chain."""
    monkeypatch.setattr(benchmark, "PointRun", RunWithoutChain)


if __name__ == "__main__":
    # a shell starts what runs in the background, as the tests may, deaf to Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.MonkeyPatch.context() as patch:
        use_runs_without_chain(patch)
        sys.exit(benchmark.main())
