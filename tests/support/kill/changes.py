"""Kills this process at its N-th change to a folder, made by Python or by Arrow, which opens files itself.

A change is a file opened for writing, renamed or removed, or a folder made or removed.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

CHANGES = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree")


def kill_at(change: int, folder: str) -> list[int]:
    """Kill this process at the N-th change below a folder; return a list whose item is the running count."""
    count = [0]

    def watch(event: str, arguments: tuple) -> None:
        if event not in CHANGES or not str(arguments[0]).startswith(folder):
            return
        if event == "open" and not (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR):
            return
        count[0] += 1
        if count[0] == change:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    pa.OSFile, pq.ParquetWriter = audited(pa.OSFile), audited(pq.ParquetWriter)
    return count


def audited(opener: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an opener outside Python so that it raises the audit event of `open` once the file exists."""

    def open_and_tell(file: str | Path, *rest: Any, **options: Any) -> Any:
        file_object = opener(file, *rest, **options)
        sys.audit("open", str(file), "wb", os.O_WRONLY)
        return file_object

    return open_and_tell
