"""Does the same to every bucket, here or on a Dask cluster, and says how far it is."""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from schemas.errors import NestError
from schemas.io.progress import progress_line

Result = TypeVar("Result")
SECONDS_BETWEEN_LINES = 5.0

log = logging.getLogger("nest")


class Workers(Protocol):
    """Who works on the buckets."""

    def each(self, step: str, work: Callable[[int], Result], buckets: int) -> Iterator[Result]:
        """Yield what `work` returns for bucket 0, 1, …, in that order."""
        ...


@dataclass(frozen=True)
class Here:
    """One bucket after the other in this process; polars and Arrow use its cores."""

    def each(self, step: str, work: Callable[[int], Result], buckets: int) -> Iterator[Result]:
        progress = Progress(step, "buckets", buckets)
        for bucket in range(buckets):
            yield work(bucket)
            progress.advance(1)


_workers: Workers = Here()


def use(scheduler: str | None) -> None:
    """Let this process's buckets be worked on by the cluster behind a scheduler's address; None: here.

    Raises:
        NestError: Dask is not installed.
    """
    global _workers
    if scheduler is None:
        _workers = Here()
        return
    try:
        from pipelines.engine.dask import Cluster
    except ImportError:
        raise NestError(
            "NEST_DASK_SCHEDULER is set, but Dask is not installed; pip install -e '.[cluster]'."
        ) from None
    _workers = Cluster(scheduler)


def each_bucket(step: str, work: Callable[[int], Result], buckets: int) -> Iterator[Result]:
    """Yield what `work`, which can be pickled, returns for bucket 0, 1, …, in that order."""
    return _workers.each(step, work, buckets)


class Progress:
    """A line every few seconds: what is done, how fast, how long it will take."""

    def __init__(self, step: str, unit: str, total: int) -> None:
        self._step, self._unit, self._total, self._done = step, unit, total, 0
        self._started = self._said = time.monotonic()

    def advance(self, done: int) -> None:
        self._done += done
        now = time.monotonic()
        if now - self._said < SECONDS_BETWEEN_LINES:
            return
        self._said = now
        rate = self._done / (now - self._started)
        total = max(self._total, self._done)  # of a file's rows an estimate
        left = (total - self._done) / rate if rate else None
        log.info("%s", progress_line(self._step, self._done, total, self._unit, rate, left))
