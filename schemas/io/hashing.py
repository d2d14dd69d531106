"""Hash files and cache the results: a step needs the hash of an input of many gigabytes twice."""

import hashlib
import time
from collections.abc import Callable
from pathlib import Path

_BYTES_AT_A_TIME = 1 << 22
# longer than a tick of a file system's clock, within which two changes have the same time
_TICK_NS = 12_000_000
# path, inode, size in bytes, mtime and ctime in ns
_Stamp = tuple[str, int, int, int, int]
_cache: dict[_Stamp, str] = {}


def file_sha256(path: Path, *, on_bytes: Callable[[int], object] = lambda _: None) -> str:
    """Return the SHA-256 of a file, cached as long as the file does not change.

    Args:
        on_bytes: called with the number of bytes of each block read.
    """
    stat = path.stat()
    stamp = (str(path), stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    if stamp in _cache:
        return _cache[stamp]
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BYTES_AT_A_TIME):
            digest.update(block)
            on_bytes(len(block))
    if time.time_ns() - stat.st_ctime_ns > _TICK_NS:
        _cache[stamp] = digest.hexdigest()
    return digest.hexdigest()
