"""A progress line every few seconds."""

import logging
import time

from schemas.io.progress import progress_line

SECONDS_BETWEEN_LINES = 5.0

log = logging.getLogger("nest")


class StepProgress:
    """Logs every few seconds how much is done, at what rate, and the time left."""

    def __init__(self, step: str, unit: str, total: int) -> None:
        self._step, self._unit, self._total, self._done = step, unit, total, 0
        self._started = self._said = time.monotonic()

    def advance(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if now - self._said < SECONDS_BETWEEN_LINES:
            return
        self._said = now
        rate = self._done / (now - self._started)
        total = max(self._total, self._done)  # the number of rows of a file is an estimate
        seconds_left = (total - self._done) / rate if rate else None
        log.info("%s", progress_line(self._step, self._done, total, self._unit, rate, seconds_left))
