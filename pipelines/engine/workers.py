"""Runs a function on every bucket, in this process or on a Dask cluster, and reports progress."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pipelines.engine.progress import StepProgress
from schemas.errors import NestError

Result = TypeVar("Result")

log = logging.getLogger("nest")


class Workers(Protocol):
    """An executor of buckets."""

    def each(self, step: str, work: Callable[[int], Result], buckets: int) -> Iterator[Result]:
        """Yield what `work` returns for bucket 0, 1, …, in that order."""
        ...


@dataclass(frozen=True)
class LocalWorkers:
    """Processes one bucket after the other in this process; polars and Arrow use its cores."""

    def each(self, step: str, work: Callable[[int], Result], buckets: int) -> Iterator[Result]:
        progress = StepProgress(step, "buckets", buckets)
        for bucket in range(buckets):
            yield work(bucket)
            progress.advance(1)


_workers: Workers = LocalWorkers()


def use_scheduler(scheduler: str | None) -> None:
    """Choose where this process runs its buckets: on the cluster of a scheduler address, or locally (None).

    Raises:
        NestError: Dask is not installed.
    """
    global _workers
    if scheduler is None:
        _workers = LocalWorkers()
        return
    try:
        from pipelines.engine.dask import Cluster
    except ImportError:
        raise NestError(
            "NEST_DASK_SCHEDULER is set, but Dask is not installed. Run pip install -e '.[cluster]'."
        ) from None
    _workers = Cluster(scheduler)


def each_bucket(step: str, work: Callable[[int], Result], buckets: int) -> Iterator[Result]:
    """Yield what `work`, which must be picklable, returns for bucket 0, 1, …, in that order."""
    return _workers.each(step, work, buckets)
