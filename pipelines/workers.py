"""Does the same to every bucket, here or on a cluster, and says how far it is."""

import logging
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

Result = TypeVar("Result")
SECONDS_BETWEEN_LINES = 5.0

log = logging.getLogger("nest")


def each_bucket(step: str, work: Callable[[int], Result], buckets: int) -> Iterator[Result]:
    """Yield what `work` returns for bucket 0, 1, …, in that order."""
    progress = Progress(step, "buckets", buckets)
    for bucket in range(buckets):
        yield work(bucket)
        progress.advance(1)


class Progress:
    """A line every few seconds: what is done, how fast, how long it will take."""

    def __init__(self, step: str, unit: str, total: int) -> None:
        self._step, self._unit, self._total, self._done = step, unit, total, 0
        self._started = self._said = time.monotonic()

    def advance(self, done: int) -> None:
        self._done += done
        now = time.monotonic()
        if now - self._said >= SECONDS_BETWEEN_LINES:
            rate = self._done / (now - self._started)
            left = (self._total - self._done) / rate
            log.info(
                "%s: %s of %s %s, %s %s/s, %.0f s left",
                self._step,
                f"{self._done:,}",
                f"{self._total:,}",
                self._unit,
                f"{rate:,.1f}",
                self._unit,
                left,
            )
            self._said = now
