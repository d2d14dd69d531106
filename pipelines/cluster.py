"""The buckets on the workers of a Dask scheduler. Import this only where there is one: Dask is an extra."""

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from distributed import Client, Future, KilledWorker, wait

from pipelines.workers import Progress
from schemas.errors import NestError

Result = TypeVar("Result")
SECONDS_TO_ANSWER = 20
SECONDS_FOR_A_WORKER = 600  # a cluster's queue may take its time
SECONDS_FOR_THE_LAST = 600
TIMES_TRIED = 4  # a bucket whose worker died goes to another
BUCKETS_PER_THREAD = 2

log = logging.getLogger("nest")


@dataclass(frozen=True)
class Cluster:
    """The workers of a Dask scheduler (`tcp://host:port`), which see the data folder under the same path.

    A worker that dies costs the buckets it held, which others do again; what is written is the same to the byte.
    """

    scheduler: str

    def each(self, step: str, work: Callable[[int], Result], buckets: int) -> Iterator[Result]:
        """See `Workers`.

        Raises:
            NestError: nobody answers at the address, there are no workers, they died again and again, or what
                `work` itself raised.
        """
        try:
            client = Client(self.scheduler, timeout=SECONDS_TO_ANSWER, set_as_default=False)
        except (OSError, ValueError):
            raise NestError(
                f"NEST_DASK_SCHEDULER: no Dask scheduler answers at {self.scheduler}. "
                "Start it there, or unset the variable to work on this machine."
            ) from None
        with client:
            self._require_workers(client, step)
            yield from _results(client, step, work, buckets)

    def _require_workers(self, client: Client, step: str) -> None:
        """Wait until there is a worker, and say that one is waited for."""
        if client.nthreads():
            return
        log.warning(
            "%s: the Dask scheduler at %s has no workers; waiting up to %.0f s for the first `dask worker %s`",
            *(step, self.scheduler, SECONDS_FOR_A_WORKER, self.scheduler),
        )
        try:
            client.wait_for_workers(1, timeout=SECONDS_FOR_A_WORKER)
        except TimeoutError:
            raise NestError(
                f"NEST_DASK_SCHEDULER: the scheduler at {self.scheduler} has no workers. Start some with "
                f"`dask worker {self.scheduler}`, or unset the variable to work on this machine."
            ) from None


def _results(client: Client, step: str, work: Callable[[int], Result], buckets: int) -> Iterator[Result]:
    """Yield the result for bucket 0, 1, …, with no more of them on their way than keep the workers busy.

    When one fails, those on their way are waited for: they write to a folder that is about to be cleared.
    """
    progress, ahead = Progress(step, "buckets", buckets), iter(range(buckets))
    on_their_way: deque[Future[Any]] = deque()
    try:
        while True:
            room = BUCKETS_PER_THREAD * max(sum(client.nthreads().values()), 1) - len(on_their_way)
            for bucket in islice(ahead, max(room, 0)):
                on_their_way.append(client.submit(_done, work, bucket, pure=False, retries=TIMES_TRIED - 1))
            if not on_their_way:
                return
            try:
                done = on_their_way.popleft().result()
            except KilledWorker:
                raise NestError(
                    f"{step}: the Dask workers of one bucket died {TIMES_TRIED} times (out of memory?). "
                    "Give them more memory or set a smaller NEST_SUBJECTS_PER_BUCKET."
                ) from None
            if isinstance(done, _Fault):
                raise done.fault
            yield done
            progress.advance(1)
    finally:
        if on_their_way and client.nthreads():
            with client.as_current(), contextlib.suppress(TimeoutError):
                wait(list(on_their_way), timeout=SECONDS_FOR_THE_LAST)


@dataclass(frozen=True)
class _Fault:
    """What is wrong with a bucket; not raised on the worker, or Dask would try it again and again."""

    fault: NestError


def _done(work: Callable[[int], Result], bucket: int) -> Result | _Fault:
    try:
        return work(bucket)
    except NestError as error:
        return _Fault(error)
