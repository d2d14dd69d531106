"""Where a check works: beside the tables it reads, for what DuckDB spills there are rows of patients."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from schemas.errors import ContractError

_PREFIX = ".check_"


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """Give an empty folder below `folder`, its owner's alone, that is gone when the block ends.

    Raises:
        ContractError: it cannot be made.
    """
    try:
        directory = TemporaryDirectory(prefix=_PREFIX, dir=folder, ignore_cleanup_errors=True)
    except OSError as error:
        raise ContractError(
            f"{folder}: a check works there, and cannot write ({error.strerror or type(error).__name__}). "
            "Free space or mend the folder's permissions and run again."
        ) from None
    with directory as place:
        yield Path(place)


def clear_scratch(data_folder: Path) -> None:
    """Remove what killed checks left in any source's folder; for the run that holds the data folder, before its first.

    Checks of one run work side by side, so none of them can tell a dead one's folder from a living one's.
    """
    for leftover in data_folder.glob(f"*/{_PREFIX}*"):
        shutil.rmtree(leftover, ignore_errors=True)
