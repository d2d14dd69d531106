"""Damage a file like a faulty disk or copy, without a change of its size and modification time."""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def unseen(file: Path) -> Iterator[None]:
    """Restore the file's modification time after the block."""
    was = file.stat()
    yield
    os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))


def flip_bit(file: Path, place: float) -> None:
    """Flip one bit, at a position given as a share of the file."""
    with unseen(file):
        content = bytearray(file.read_bytes())
        bit = int(place * 8 * len(content))
        content[bit // 8] ^= 1 << bit % 8
        file.write_bytes(content)


def count_unnoticed(file: Path, read: Callable[[], object], error: type[Exception], flips: int = 60) -> int:
    """Flip single random bits of a file, one at a time, and return how often `read` raised no error."""
    whole, places, count = file.read_bytes(), random.Random(0), 0
    for _ in range(flips):
        flip_bit(file, places.random())
        try:
            read()
            count += 1
        except error:
            pass
        with unseen(file):
            file.write_bytes(whole)
    read()
    return count
