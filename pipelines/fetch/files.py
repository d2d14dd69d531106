"""Whole files under their final names: verified before they get them, and one run at a time in a folder."""

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
    """Make `folder` and let no other run fetch into it meanwhile; a killed run holds nothing.

    What lies aside when the block ends well is of no use to anyone, and is removed.

    Raises:
        NestError: another run fetches into it.
        InputError: it cannot be made.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(sole_writer(folder))
        except OSError as error:
            raise InputError(
                f"{folder}: cannot be made ({error.strerror}); set NEST_DATA_DIR to a folder you may write to."
            ) from None
        yield
        for leftover in folder.rglob(".*.part*"):
            leftover.unlink()


def address(base: str, name: str) -> str:
    """Return the address of a file below a base address."""
    return f"{base.rstrip('/')}/{quote(name)}"


MOST_BYTES = 32 << 30
"""Of a table as PhysioNet lays it out: MIMIC-IV's largest has a tenth of that."""


def fetch_verified(
    session: requests.Session,
    url: str,
    target: Path,
    sha256: str,
    patience: Patience,
    *,
    most_bytes: int = MOST_BYTES,
) -> bool:
    """Have `target` hold the bytes with this hash; say whether they had to be fetched.

    Raises:
        InputError: as `download`; what arrived has another hash, and is deleted then; what stands at `target` was not
            fetched, or was changed since.
    """
    if target.is_file() and file_sha256(target) == sha256:
        discard(target)
        return False
    refuse_foreign_files([target])
    aside = download(session, url, target, patience, most_bytes=most_bytes)
    if file_sha256(aside) != sha256:
        discard(target)
        raise InputError(
            f"{target.name}: what arrived from {redact_url(url)} has not the SHA-256 its list promises, and was "
            "deleted. Run again; where it happens again, the list and the file there are of two versions: check the "
            "address."
        )
    keep(target)
    return True
