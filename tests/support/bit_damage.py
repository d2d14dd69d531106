"""Harms a file the way a disk, a copy or a hand does, so that its size and its time of change tell nothing."""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def unseen(file: Path) -> Iterator[None]:
    """Leave the file's time of change as it was before the block."""
    was = file.stat()
    yield
    os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))


def flip_bit(file: Path, place: float) -> None:
    """Turn one bit round, at this share of the file's bits."""
    with unseen(file):
        content = bytearray(file.read_bytes())
        bit = int(place * 8 * len(content))
        content[bit // 8] ^= 1 << bit % 8
        file.write_bytes(content)


def count_unnoticed(file: Path, read: Callable[[], object], error: type[Exception], flips: int = 60) -> int:
    """Flip one bit of a file at a time, at random, and return how many times `read` said nothing."""
    whole, places, unnoticed = file.read_bytes(), random.Random(0), 0
    for _ in range(flips):
        flip_bit(file, places.random())
        try:
            read()
            unnoticed += 1
        except error:
            pass
        with unseen(file):
            file.write_bytes(whole)
    read()
    return unnoticed
