"""Computes blocks in order, in this process or in several, with the same result for any number of processes."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from typing import TypeVar

from schemas.errors import InputError

Result = TypeVar("Result")


def map_in_order(
    title: str, make: Callable[..., Result], calls: Sequence[tuple[object, ...]], workers: int
) -> Iterator[Result]:
    """Yield `make(*arguments)` for each of `calls`, in that order; with one worker, in this process.

    Raises:
        InputError: a worker was killed.
    """
    if workers == 1:
        yield from (make(*block) for block in calls)
        return
    pool = ProcessPoolExecutor(min(workers, len(calls)), get_context("spawn"), _die_with_parent)
    waiting: deque[Future[Result]] = deque()
    try:
        for block in calls:
            waiting.append(pool.submit(make, *block))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise InputError(
            f"{title}: one of the {workers} workers was killed, perhaps for lack of memory "
            "(each takes about 1 GiB). Run again with fewer workers; earlier files are untouched."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _die_with_parent() -> None:
    """End this worker as soon as its parent process ends, since its results would never be read."""
    parent = parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
