"""What runs leave for people to look at, logs and pictures, is removed when it is old; results never are.

A run does so when it holds the data folder. A file is removed only where its name and its first bytes are those of our
own: a user's file in these folders stays.
"""

import re
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

import dagster as dg

from assets.runtime.console import LINE_BEGINS, log_folder
from assets.runtime.instance import ENDED
from assets.runtime.served_files import PICTURE_ADDRESS, picture_folder

MOST_DAYS = 90
"""A quarter: as long as somebody asks what a run said. A nightly run of everything leaves about 20 MB in that time."""
_LOG_NAME = re.compile(r"[a-z0-9_]+_(?P<run>[0-9a-f]{8})\.log")
_PICTURE_NAME = re.compile(r"(?P<hash>[0-9a-f]{16})\.png")
_PNG = b"\x89PNG"


def remove_old_files(instance: dg.DagsterInstance, data_folder: Path) -> None:
    """Remove logs of a data folder and pictures of its history that are older than MOST_DAYS.

    The log of a run that has not ended stays, and so do the pictures that an asset's page shows now.
    """
    oldest_time = time.time() - MOST_DAYS * 86_400
    if logs := list(_old_files(log_folder(data_folder), _LOG_NAME, oldest_time)):
        live_run_ids = _ids_of_live_runs(instance)
        _remove(
            path for path, run in logs if run not in live_run_ids and LINE_BEGINS.match(_first_bytes(path))
        )
    folder = picture_folder(instance)
    if folder and (pictures := list(_old_files(folder, _PICTURE_NAME, oldest_time))):
        current = _pictures_of_pages(instance)
        _remove(
            path for path, name in pictures if name not in current and _first_bytes(path).startswith(_PNG)
        )


def _old_files(folder: Path, name: re.Pattern[str], oldest_time: float) -> Iterator[tuple[Path, str]]:
    """Yield each file of this name that was last written before a time, and what the name says."""
    with suppress(OSError):
        for path in sorted(folder.iterdir()):
            if (
                (match := name.fullmatch(path.name))
                and path.is_file()
                and path.lstat().st_mtime < oldest_time
            ):
                yield path, match[1]


def _first_bytes(path: Path) -> bytes:
    with suppress(OSError), path.open("rb") as file:
        return file.read(64)
    return b""


def _remove(paths: Iterator[Path]) -> None:
    for path in paths:
        with suppress(OSError):  # a file that stays must not fail a run
            path.unlink()


def _ids_of_live_runs(instance: dg.DagsterInstance) -> Collection[str]:
    """Return the first eight characters of the id of each run that has not ended."""
    run_filter = dg.RunsFilter(statuses=[status for status in dg.DagsterRunStatus if status not in ENDED])
    return {run.run_id[:8] for run in instance.get_runs(filters=run_filter)}


def _pictures_of_pages(instance: dg.DagsterInstance) -> Collection[str]:
    """Return the hashes of the pictures of each asset's last materialization."""
    names: set[str] = set()
    for record in instance.get_asset_records():
        event = record.asset_entry.last_materialization
        materialization = event.asset_materialization if event else None
        for value in materialization.metadata.values() if materialization else ():
            if isinstance(value, dg.MarkdownMetadataValue):
                names.update(PICTURE_ADDRESS.findall(value.md_str or ""))
    return names
