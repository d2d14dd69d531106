"""Temporary folders for checks, beside the tables they read, because DuckDB spills rows of patients there."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from schemas.errors import ContractError

_PREFIX = ".check_"


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """Yield an empty folder below `folder` that only its owner can access and that is removed after the block.

    Raises:
        ContractError: the folder cannot be created.
    """
    try:
        directory = TemporaryDirectory(prefix=_PREFIX, dir=folder, ignore_cleanup_errors=True)
    except OSError as error:
        raise ContractError(
            f"{folder}: a check needs a temporary folder there and cannot create it "
            f"({error.strerror or type(error).__name__}). Free space or fix the folder's permissions and run again."
        ) from None
    with directory as place:
        yield Path(place)


def clear_scratch(data_folder: Path) -> None:
    """Remove temporary folders of killed checks from all sources; called by a run before its first check.

    Checks of one run work in parallel, so a check itself cannot tell the folder of a dead check from that of a live
    one.
    """
    for leftover in data_folder.glob(f"*/{_PREFIX}*"):
        shutil.rmtree(leftover, ignore_errors=True)
