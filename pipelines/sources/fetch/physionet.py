"""MIMIC-IV's open demo, or whatever PhysioNet lays out as it does: files beside a SHA256SUMS.txt that promises them."""

import logging
from dataclasses import dataclass
from pathlib import Path

import requests

from pipelines.sources.checksums import SUMS, read_sums
from pipelines.sources.fetch.download import Patience, discard, download, keep
from pipelines.sources.fetch.files import address, alone_in, fetch_verified
from pipelines.sources.mimic_tables import TABLES
from schemas.errors import InputError
from schemas.urls import shown_url

TABLE_FILES = {table: f"hosp/{table}.csv.gz" for table in TABLES}
LICENSE = "LICENSE.txt"  # goes with the tables wherever they go

log = logging.getLogger("nest")


@dataclass(frozen=True)
class Fetched:
    """What lies in the folder now."""

    folder: Path
    sums: dict[str, str]  # file name -> SHA-256, of the files that were wanted
    arrived: int  # files that had to be fetched; the others were there


def fetch_mimic_demo(base_url: str, folder: Path, patience: Patience | None = None) -> Fetched:
    """Bring the tables we read and their licence into `folder`, each file verified; what is there and right is kept.

    SHA256SUMS.txt gets its name last: where it lies, all it was asked for lies beside it.

    Raises:
        InputError: a file is refused, missing, or not what the list promises; the server cannot be reached; the disk
            is full; another run fetches into the folder.
    """
    patience = patience or Patience()
    with alone_in(folder), requests.Session() as session:
        wanted = _wanted(session, base_url, folder / SUMS, patience)
        arrived = 0
        for number, (name, sha256) in enumerate(wanted.items(), start=1):
            fresh = fetch_verified(session, address(base_url, name), folder / name, sha256, patience)
            arrived += fresh
            size = (folder / name).stat().st_size
            state = "fetched and verified" if fresh else "is there"
            log.info("%s: %s bytes, %s (%d of %d files)", name, f"{size:,}", state, number, len(wanted))
        keep(folder / SUMS)
    return Fetched(folder, wanted, arrived)


def _wanted(session: requests.Session, base_url: str, sums: Path, patience: Patience) -> dict[str, str]:
    """Return the files to fetch and their sums."""
    text = download(session, address(base_url, SUMS), sums, patience).read_text(errors="replace")
    listed = read_sums(text)
    if missing := [table for table, name in TABLE_FILES.items() if name not in listed]:
        discard(sums)
        raise InputError(
            f"{shown_url(base_url)}: its {SUMS} lists no {', '.join(missing)} under hosp. Give the address of the "
            "folder that holds hosp."
        )
    return {name: listed[name] for name in (LICENSE, *TABLE_FILES.values()) if name in listed}
