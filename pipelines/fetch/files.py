"""Puts verified files under their final names, with only one run at a time per folder."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import quote

import requests

from pipelines.fetch.download import Patience, discard, download, keep
from schemas.errors import InputError
from schemas.io.hashing import file_sha256
from schemas.io.lock import sole_writer
from schemas.io.outputs import refuse_foreign_files
from schemas.io.urls import redact_url


@contextmanager
def exclusive_folder(folder: Path) -> Iterator[None]:
    """Create `folder` and lock it against other runs; the lock of a killed run does not remain.

    On success, leftover partial copies are removed.

    Raises:
        NestError: another run fetches into the folder.
        InputError: the folder cannot be created.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(sole_writer(folder))
        except OSError as error:
            raise InputError(
                f"{folder}: cannot be created ({error.strerror}). Set NEST_DATA_DIR to a folder you may write to."
            ) from None
        yield
        for leftover in folder.rglob(".*.part*"):
            leftover.unlink()


def address(base: str, name: str) -> str:
    """Return the address of a file below a base address."""
    return f"{base.rstrip('/')}/{quote(name)}"


MOST_BYTES = 32 << 30
"""Size limit of a PhysioNet table: the largest of MIMIC-IV has a tenth of that."""


def fetch_verified(
    session: requests.Session,
    url: str,
    target: Path,
    sha256: str,
    patience: Patience,
    *,
    most_bytes: int = MOST_BYTES,
) -> bool:
    """Make sure that `target` has this SHA-256; return whether it had to be fetched.

    Raises:
        InputError: as `download`; the download has another hash, and was deleted; the file at `target` was not
            fetched, or was changed since.
    """
    if target.is_file() and file_sha256(target) == sha256:
        discard(target)
        return False
    refuse_foreign_files([target])
    part_file = download(session, url, target, patience, most_bytes=most_bytes)
    if file_sha256(part_file) != sha256:
        discard(target)
        raise InputError(
            f"{target.name}: the file from {redact_url(url)} does not have the SHA-256 of its list and was "
            "deleted. Run again; if it happens again, the list and the file there are of different versions: check "
            "the address."
        )
    keep(target)
    return True
