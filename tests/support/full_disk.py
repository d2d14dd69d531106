"""A disk without room, as the kernel knows it."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_room(largest_file: int = 200) -> Iterator[None]:
    """Limit files of this process to so many bytes, so that the kernel refuses writes as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
