"""Blocks made in order, by this process or by several: the same blocks whatever their number."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from typing import TypeVar

from schemas.errors import InputError

Made = TypeVar("Made")


def map_in_order(
    title: str, make: Callable[..., Made], calls: Sequence[tuple[object, ...]], workers: int
) -> Iterator[Made]:
    """Yield `make(*arguments)` for each of `calls`, in that order; with one worker in this process itself.

    Raises:
        InputError: a worker was killed.
    """
    if workers == 1:
        yield from (make(*block) for block in calls)
        return
    pool = ProcessPoolExecutor(min(workers, len(calls)), get_context("spawn"), _die_with_parent)
    waiting: deque[Future[Made]] = deque()
    try:
        for block in calls:
            waiting.append(pool.submit(make, *block))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise InputError(
            f"{title}: one of the {workers} workers was killed, for want of memory perhaps "
            "(each takes about 1 GiB). Run again with fewer workers; earlier files are untouched."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _die_with_parent() -> None:
    """End this worker as soon as the process that started it has: nobody would ever read what it makes."""
    parent = parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
