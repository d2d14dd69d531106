"""The hash of a file, taken once: an input of many gigabytes is asked for twice in a step."""

import hashlib
import time
from collections.abc import Callable
from pathlib import Path

_BYTES_AT_A_TIME = 1 << 22
_TICK_NS = (
    12_000_000  # longer than a file system's clock stands: within a tick it does not tell two changes apart
)
_Stamp = tuple[str, int, int, int, int]
_cache: dict[
    _Stamp, str
] = {}  # of this process: place, inode, bytes, and when its content and its entry changed


def file_sha256(path: Path, *, on_bytes: Callable[[int], object] = lambda _: None) -> str:
    """Return the hash of a file's bytes, from memory where it has not changed since it was last taken.

    Args:
        on_bytes: called with the number of bytes of each piece read.
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
