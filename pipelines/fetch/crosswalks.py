"""Fetches the crosswalks: the General Equivalence Mappings of CMS, and GSN → ATC from a given address."""

import gzip
import io
import logging
import zipfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import polars as pl
import requests

from pipelines.fetch.download import Patience, discard, download, keep
from pipelines.fetch.files import address, exclusive_folder
from pipelines.reading.crosswalks import CROSSWALKS
from pipelines.reading.files import refuse_cut_text
from pipelines.reading.gem import NATIVE, read_gem
from pipelines.reading.tables import find_file
from schemas.errors import InputError, NestError
from schemas.io.atomic import writing
from schemas.io.outputs import refuse_foreign_files, replace_outputs
from schemas.io.urls import redact_url

ARCHIVES = {
    "icd_cm_9_to_10_mapping": "2018-icd-10-cm-general-equivalence-mappings.zip",
    "icd_pcs_9_to_10_mapping": "2018-icd-10-pcs-general-equivalence-mappings.zip",
}
GSN = "gsn_atc_ndc_mapping"
MOST_BYTES = 1 << 26  # limit of a download: the CMS archives have two million
MOST_BYTES_INSIDE = 1 << 28  # limit of an uncompressed file: those of CMS have four million

TOO_LARGE_INSIDE = f"the limit of {MOST_BYTES_INSIDE / 1e6:,.0f} MB; it was deleted. Check the address."

log = logging.getLogger("nest")


@dataclass(frozen=True)
class FetchedCrosswalks:
    """The crosswalks in the folder after fetching."""

    folder: Path
    files: dict[str, Path]  # crosswalk -> file, for those that exist

    @property
    def missing(self) -> list[str]:
        return [name for name in CROSSWALKS if name not in self.files]

    @property
    def sentence(self) -> str:
        """Return a sentence on whether all crosswalks are present, and what to do if not."""
        if not self.missing:
            return f"All {len(self.files)} crosswalks are there."
        return (
            f"{', '.join(self.missing)}: not publicly available. Set NEST_GSN_ATC_URL to an address you may fetch it "
            f"from and run again, or put {GSN}.csv (columns gsn, atc) into {self.folder}; see docs/data.md."
        )


def fetch_crosswalks(
    gem_url: str, gsn_url: str | None, folder: Path, patience: Patience | None = None
) -> FetchedCrosswalks:
    """Fetch the two CMS mappings into `folder` as text, and GSN → ATC from `gsn_url` if given.

    The CMS files of 2018 are final: existing ones are kept, as text or as a table placed there by hand. GSN → ATC is
    fetched each time; without an address, a table placed in the folder by hand is kept.

    Raises:
        InputError: a file is refused, missing or invalid; the server cannot be reached; the disk is full; another run
            fetches into the folder. Everything that can be fetched is fetched before this is raised.
    """
    patience = patience or Patience()
    with exclusive_folder(folder), requests.Session() as session:
        fetches = [partial(_fetch_mapping, session, gem_url, name, folder, patience) for name in ARCHIVES]
        if gsn_url is not None:
            fetches.append(partial(_fetch_gsn, session, gsn_url, folder / f"{GSN}.csv.gz", patience))
        _run_all(fetches)
        files = {name: find_file(folder, name) for name in CROSSWALKS}
    return FetchedCrosswalks(folder, {name: path for name, path in files.items() if path is not None})


def _run_all(fetches: Iterable[Callable[[], None]]) -> None:
    """Run all fetches even if some fail, then raise all their messages as one."""
    faults = []
    for fetch in fetches:
        try:
            fetch()
        except NestError as error:
            faults.append(str(error))
    if faults:
        raise InputError(" ".join(dict.fromkeys(faults)))  # report a full disk once


def _fetch_mapping(
    session: requests.Session, gem_url: str, crosswalk: str, folder: Path, patience: Patience
) -> None:
    """Make sure that a CMS mapping is in the folder, as text or as a table placed there by hand."""
    text, archive = folder / NATIVE[crosswalk], ARCHIVES[crosswalk]
    if (existing := find_file(folder, crosswalk)) is None:
        _fetch_gem(session, address(gem_url, archive), folder / archive, text, patience)
    if existing in (None, text):
        log.info("%s: %s rows", text.name, f"{read_gem(text).height:,}")


def _fetch_gem(session: requests.Session, url: str, archive: Path, target: Path, patience: Patience) -> None:
    """Fetch an archive, extract the mapping, and delete the archive."""
    part_file = download(session, url, archive, patience, most_bytes=MOST_BYTES)
    try:
        text = _member(part_file, target.name)
        with replace_outputs([target]) as (part,):
            part.write_bytes(text)
            read_gem(part)
    except InputError as error:
        raise InputError(f"{redact_url(url)}: {error}") from None
    finally:
        discard(target)
        discard(archive)


def _member(archive: Path, name: str) -> bytes:
    """Return the content of a file of a zip archive, in any of its folders, with its CRC checked."""
    try:
        with zipfile.ZipFile(archive) as files:
            members = [file for file in files.namelist() if Path(file).name.lower() == name.lower()]
            if len(members) != 1:
                raise InputError(
                    f"the archive holds {len(members)} files named {name} and must hold one. Check the address."
                )
            with files.open(members[0]) as text:
                content = text.read(MOST_BYTES_INSIDE + 1)
            if len(content) > MOST_BYTES_INSIDE:
                raise InputError(f"{name} in it is larger than {TOO_LARGE_INSIDE}")
            return content
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError):
        raise InputError(
            "what arrived is not a complete zip archive and was deleted. Open the address in a browser to see what it "
            "is, or run again."
        ) from None


def _fetch_gsn(session: requests.Session, url: str, target: Path, patience: Patience) -> None:
    """Fetch the table as plain or gzipped CSV and store it gzipped, under the name that is looked for first.

    Raises:
        InputError: as `download`, or a table was placed there by hand.
    """
    refuse_foreign_files([target])
    part_file = download(session, url, target, patience, most_bytes=MOST_BYTES)
    try:
        content = part_file.read_bytes()
        log.info("%s: %s rows", target.name, f"{_count_gsn(content, url):,}")
        if not content.startswith(b"\x1f\x8b"):
            # if the server states no length, a cut connection looks like the end of the file
            refuse_cut_text(part_file, content.split(b"\n", 1)[0].count(b",") + 1)
            with writing(target):
                part_file.write_bytes(gzip.compress(content, mtime=0))
        keep(target)
    finally:
        discard(target)


def _count_gsn(content: bytes, url: str) -> int:
    """Return the number of rows of the table.

    Raises:
        InputError: the content is not such a table, or is too large.
    """
    try:
        with (
            gzip.open(io.BytesIO(content)) if content.startswith(b"\x1f\x8b") else io.BytesIO(content) as file
        ):
            table = file.read(MOST_BYTES_INSIDE + 1)
        if len(table) > MOST_BYTES_INSIDE:
            raise InputError(f"{redact_url(url)}: the table in it is larger than {TOO_LARGE_INSIDE}")
        return pl.read_csv(io.BytesIO(table), columns=["gsn", "atc"], infer_schema=False).height
    except (OSError, EOFError, zlib.error, pl.exceptions.PolarsError):
        raise InputError(
            f"{redact_url(url)}: is not a comma-separated table with the columns gsn and atc. Check "
            f"NEST_GSN_ATC_URL, or put {GSN}.csv into the folder of the crosswalks by hand."
        ) from None
