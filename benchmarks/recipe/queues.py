"""Runs queues of trainings side by side, each queue in its order."""

import logging
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.recipe.trainings import TrainingCommand
from schemas.errors import NestError

ROOT = Path(__file__).parents[2]
log = logging.getLogger("nest")
_SECONDS_BETWEEN_LOOKS = 0.2
_SECONDS_TO_SAVE = (
    60  # of a training that is asked to stop; one that takes longer goes on from an earlier state
)


def run(
    queues: Sequence[Sequence[TrainingCommand]], workers: int, on_done: Callable[[TrainingCommand], None]
) -> None:
    """Run every training that is not done, one at a time of a queue and `workers` in all.

    A training in several queues is run once. Whatever ends this, it stops the trainings that are running; their saved
    state is kept.

    Raises:
        InputError: a training cannot be learnt from its tables.
        NestError: a training failed or was stopped.
    """
    waiting = [deque(queue) for queue in queues]
    running: dict[int, tuple[TrainingCommand, subprocess.Popen[bytes]]] = {}  # by the place of its queue
    try:
        while True:
            while len(running) < workers and (place := _ready(waiting, running)) is not None:
                training = waiting[place].popleft()
                running[place] = (training, _start(training))
            if not running:
                return
            time.sleep(_SECONDS_BETWEEN_LOOKS)
            for place, (training, process) in list(running.items()):
                if process.poll() is not None:
                    del running[place]
                    _refuse_failed(training, process.returncode)
                    on_done(training)
    finally:
        for _, process in running.values():
            process.terminate()
        for _, process in running.values():
            try:
                process.wait(_SECONDS_TO_SAVE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _ready(
    waiting: Sequence[deque[TrainingCommand]], running: Mapping[int, tuple[TrainingCommand, object]]
) -> int | None:
    """Return the place of the first queue whose next training can start; drop trainings that are done."""
    models = {training.model for training, _ in running.values()}
    for place, queue in enumerate(waiting):
        while queue and queue[0].is_done:
            queue.popleft()
        if queue and place not in running and queue[0].model not in models:
            return place
    return None


def _start(training: TrainingCommand) -> subprocess.Popen[bytes]:
    log.info("started: %s; its rate and time left are in %s", training.words, training.messages)
    training.messages.parent.mkdir(parents=True, exist_ok=True)
    with training.messages.open("ab") as messages:
        return subprocess.Popen(
            training.argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=messages, stderr=subprocess.STDOUT
        )


def _refuse_failed(training: TrainingCommand, status: int) -> None:
    training.refuse_without_a_model()
    if status or not training.is_done:  # one that is stopped by a signal ends with 0
        raise NestError(
            f"{training.words}: the training failed or was stopped; see {training.messages}. Run again to continue."
        )
