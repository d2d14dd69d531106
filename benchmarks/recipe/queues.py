"""Runs queues of trainings side by side, each queue in its order."""

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.recipe.trainings import Training
from schemas.errors import NestError

ROOT = Path(__file__).parents[2]
_SECONDS_BETWEEN_LOOKS = 0.2


def run(queues: Sequence[Sequence[Training]], workers: int, on_done: Callable[[Training], None]) -> None:
    """Run every training that is not done, one at a time of a queue and `workers` in all.

    Whatever ends this, it stops the trainings that are running; their saved state is kept.

    Raises:
        InputError: a training cannot be learnt from its tables.
        NestError: a training failed or was stopped.
    """
    waiting = [[training for training in queue if not training.is_done] for queue in queues]
    running: list[tuple[Training, list[Training], subprocess.Popen[bytes]]] = []
    try:
        while running or any(waiting):
            while len(running) < workers and any(waiting):
                queue = waiting.pop(next(place for place, queue in enumerate(waiting) if queue))
                running.append((queue[0], queue[1:], _start(queue[0])))
            time.sleep(_SECONDS_BETWEEN_LOOKS)
            for place in reversed(range(len(running))):
                training, rest, process = running[place]
                if process.poll() is not None:
                    del running[place]
                    _refuse_failed(training, process.returncode)
                    on_done(training)
                    waiting.insert(0, rest)
    finally:
        for _, _, process in running:
            process.terminate()
        for _, _, process in running:
            process.wait()


def _start(training: Training) -> subprocess.Popen[bytes]:
    training.messages.parent.mkdir(parents=True, exist_ok=True)
    with training.messages.open("ab") as messages:
        return subprocess.Popen(
            training.command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=messages, stderr=subprocess.STDOUT
        )


def _refuse_failed(training: Training, status: int) -> None:
    training.refuse_without_a_model()
    if status or not training.is_done:  # one that is stopped by a signal ends with 0
        raise NestError(
            f"{training.words}: the training failed or was stopped; see {training.messages}. Run again to continue."
        )
