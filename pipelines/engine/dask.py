"""Runs buckets on the workers of a Dask scheduler. Import it only on demand: Dask is an optional extra."""

import logging
import re
import socket
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from distributed import CancelledError, Client, Future, KilledWorker, wait

from pipelines.engine.progress import StepProgress
from schemas.errors import NestError
from schemas.nouns import with_noun

Result = TypeVar("Result")
SECONDS_TO_ANSWER = 20
SECONDS_FOR_A_WORKER = 600  # a cluster queue may be slow
SECONDS_FOR_THE_LAST = 600
SECONDS_BETWEEN_LOOKS = 10.0  # how often to check that workers are left
TIMES_TRIED = 4  # when a worker dies, its bucket goes to another
BUCKETS_PER_THREAD = 2

log = logging.getLogger("nest")


@dataclass(frozen=True)
class Cluster:
    """The workers of a Dask scheduler (`tcp://host:port`), which see the data folder under the same path.

    If a worker dies, others repeat its buckets; the output is the same to the byte.
    """

    scheduler: str

    def each(self, step: str, work: Callable[[int], Result], buckets: int) -> Iterator[Result]:
        """See `Workers`.

        Raises:
            NestError: the scheduler does not answer or goes away, there are no workers, they keep dying, or `work`
                itself raised an error.
        """
        try:
            client = Client(self.scheduler, timeout=SECONDS_TO_ANSWER, set_as_default=False)
        except (OSError, ValueError):
            raise NestError(
                f"NEST_DASK_SCHEDULER: no Dask scheduler answers at {self.scheduler}. "
                "Start it there, or unset the variable to work on this machine."
            ) from None
        with client:
            _require_workers(client, self.scheduler, step)
            try:
                yield from _results(client, self.scheduler, step, work, buckets)
            except (OSError, CancelledError):
                raise NestError(
                    f"{step}: the Dask scheduler at {self.scheduler} went away. Start it and its workers and run again."
                ) from None


def _require_workers(client: Client, address: str, step: str) -> None:
    """Wait until there is a worker, and log the wait.

    Raises:
        NestError: no worker came in time.
    """
    if client.nthreads():
        return
    log.warning(
        "%s: the Dask scheduler at %s has no workers; waiting up to %.0f s for the first `dask worker %s`",
        *(step, address, SECONDS_FOR_A_WORKER, address),
    )
    try:
        client.wait_for_workers(1, timeout=SECONDS_FOR_A_WORKER)
    except TimeoutError:
        raise NestError(
            f"NEST_DASK_SCHEDULER: the scheduler at {address} has no workers. Start some with "
            f"`dask worker {address}`, or unset the variable to work on this machine."
        ) from None


def _results(
    client: Client, address: str, step: str, work: Callable[[int], Result], buckets: int
) -> Iterator[Result]:
    """Yield the results for bucket 0, 1, …, and keep enough buckets in flight to occupy the workers.

    If one fails, wait for those in flight: otherwise the next run would find the workers busy with them.
    """
    progress, ahead = StepProgress(step, "buckets", buckets), iter(range(buckets))
    in_flight: deque[Future[Any]] = deque()
    try:
        while True:
            threads = max(sum(client.nthreads().values()), 1)
            room = BUCKETS_PER_THREAD * threads - sum(not future.done() for future in in_flight)
            for bucket in islice(ahead, max(room, 0)):
                in_flight.append(
                    client.submit(_run_bucket, work, bucket, pure=False, retries=TIMES_TRIED - 1)
                )
            if not in_flight:
                return
            result = _wait_for(in_flight[0], client, address, step)
            in_flight.popleft()
            if isinstance(result, _Fault):
                raise result.fault
            yield result
            progress.advance(1)
    finally:
        _wait_for_rest(client, step, [future for future in in_flight if not future.done()])


def _wait_for(future: "Future[Any]", client: Client, address: str, step: str) -> Any:
    while True:
        try:
            return future.result(timeout=SECONDS_BETWEEN_LOOKS)
        except KilledWorker:
            raise NestError(
                f"{step}: the Dask workers of one bucket died {TIMES_TRIED} times (out of memory?). "
                "Give them more memory or set a smaller NEST_SUBJECTS_PER_BUCKET."
            ) from None
        except TimeoutError:  # the timeout above; errors of the work itself arrive as a _Fault
            _require_workers(client, address, step)


def _wait_for_rest(client: Client, step: str, futures: list["Future[Any]"]) -> None:
    """Wait up to ten minutes for buckets in progress; return at once if no workers are left."""
    try:
        if not futures or not client.nthreads():
            return
        log.warning("%s: waiting for %s in progress", step, with_noun(len(futures), "bucket"))
        with client.as_current():
            wait(futures, timeout=SECONDS_FOR_THE_LAST)
    except TimeoutError:
        log.warning("%s: workers are still busy with some buckets; what they write has no effect", step)
    except OSError:
        return  # the scheduler went away, which has been reported


@dataclass(frozen=True)
class _Fault:
    """An error in a bucket, returned and not raised on the worker, where Dask would retry it."""

    fault: NestError


def _run_bucket(work: Callable[[int], Result], bucket: int) -> Result | _Fault:
    try:
        return work(bucket)
    except NestError as error:
        return _Fault(error)
    except OSError as error:  # re-raised, it would look like an error of the scheduler
        reason = (
            "no such file" if isinstance(error, FileNotFoundError) else error.strerror or type(error).__name__
        )
        return _Fault(
            NestError(
                f"{_file_of(error)}: cannot be used on the Dask worker at {socket.gethostname()} "
                f"({reason}). All workers must see the data folder under the same "
                "path and be allowed to write there. Fix that and run again."
            )
        )


def _file_of(error: OSError) -> str:
    """Return the file an error is about: polars and Arrow name it only in the message text."""
    if error.filename is not None:
        return str(error.filename)
    match = re.search(r"'(/[^']+)'|: (/.+)$", str(error), re.MULTILINE)
    return next(filter(None, match.groups())) if match else "a file"
