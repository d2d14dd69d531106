"""Fetches the MIMIC-IV demo, or another PhysioNet folder with hosp and a SHA256SUMS.txt."""

import logging
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import requests

from pipelines.fetch.download import Patience, discard, download, keep
from pipelines.fetch.files import MOST_BYTES, address, exclusive_folder, fetch_verified
from pipelines.sources.mimic.checksums import SUMS, read_sums
from pipelines.sources.mimic.tables import DICTIONARIES, TABLES
from schemas.errors import InputError
from schemas.io.urls import redact_url

TABLE_FILES = {table: f"hosp/{table}.csv.gz" for table in (*TABLES, *DICTIONARIES)}
LICENSE = "LICENSE.txt"  # must accompany the tables
MOST_BYTES_OF_SUMS = 1 << 20
MOST_BYTES_OF_DEMO = 1 << 24  # per file of the demo; the largest has two million
FINAL = {
    "mimic-iv-demo/2.2": {
        LICENSE: "bcdfcd4f31c790e30fb645dc36414907172405897adff329ad379eed85d12017",
        "hosp/patients.csv.gz": "59dcc6cd8450ddf03ad32cc7d76e41caa4c9633541715987f590c74835cf6fae",
        "hosp/admissions.csv.gz": "910b9f160ffdf1e08ea673585393f347c773ccc87d66875c627584a903ae8493",
        "hosp/diagnoses_icd.csv.gz": "958565670c0b3903c0c12825366dc2bae8561d2d55f16feac0c949dd630ed3e4",
        "hosp/procedures_icd.csv.gz": "68f21dcba9ae0c4b7faa3ef38aa950a8ebeb6d167bc74416314dccdcf28674e0",
        "hosp/labevents.csv.gz": "d51a4cf1ea63245abe7d544b0d50a928e9ee2ec5eb9a5ce85500aed0bd6c6dfc",
        "hosp/emar.csv.gz": "f14a4b5597abcc2e8d62d291c7839347ef6260d4c548ea534ab62df6b2f49adc",
        "hosp/prescriptions.csv.gz": "33c392ba5b9299b08eca0a61911ba106f0aebdba26ed31b856bb9ffd49fe3654",
        "hosp/d_labitems.csv.gz": "72ea5f020469fd24543bd98ab3bd0a4f645a5a4b7802d9d52af20d736f9d76db",
        "hosp/d_icd_diagnoses.csv.gz": "0f715a3c4c5e44400305d4deb86ff648e499a3bfcb946f353e8b030022d3ec06",
        "hosp/d_icd_procedures.csv.gz": "a921a20fbf3220e2a7fe874d6392d671c1cc769a001ef0a7841b80eb01030bb6",
    }
}
"""End of the address -> files of a version that is final; addresses of mirrors end like those of PhysioNet."""

log = logging.getLogger("nest")


@dataclass(frozen=True)
class FetchedDemo:
    """The files in the folder after fetching."""

    folder: Path
    sums: dict[str, str]  # file name -> SHA-256, of the files to have
    new_files: int  # number of files that had to be fetched; the others existed


def fetch_mimic_demo(base_url: str, folder: Path, patience: Patience | None = None) -> FetchedDemo:
    """Fetch the tables that we read and their licence into `folder`, verify each, and keep correct existing files.

    SHA256SUMS.txt is put in place last: if it exists, all files that were requested exist beside it.

    Raises:
        InputError: a file is refused, missing, or has another hash than listed; the server cannot be reached; the disk
            is full; another run fetches into the folder.
    """
    patience = patience or Patience()
    with exclusive_folder(folder), requests.Session() as session:
        sums = _read_sums(session, base_url, folder / SUMS, patience)
        new_files, most_bytes = 0, MOST_BYTES_OF_DEMO if _final_sums(base_url) else MOST_BYTES
        for number, (name, sha256) in enumerate(sums.items(), start=1):
            fresh = fetch_verified(
                session, address(base_url, name), folder / name, sha256, patience, most_bytes=most_bytes
            )
            new_files += fresh
            size = (folder / name).stat().st_size
            state = "fetched and verified" if fresh else "is there"
            log.info("%s: %s bytes, %s (%d of %d files)", name, f"{size:,}", state, number, len(sums))
        keep(folder / SUMS)
    return FetchedDemo(folder, sums, new_files)


def _read_sums(session: requests.Session, base_url: str, sums: Path, patience: Patience) -> dict[str, str]:
    """Fetch the list and return the files to have with their SHA-256."""
    sums_url = address(base_url, SUMS)
    text = download(session, sums_url, sums, patience, most_bytes=MOST_BYTES_OF_SUMS).read_text(
        errors="replace"
    )
    hashes = read_sums(text)
    missing = [table for table in TABLES if TABLE_FILES[table] not in hashes]  # dictionaries are optional
    if missing:
        discard(sums)
        raise InputError(
            f"{redact_url(base_url)}: its {SUMS} lists no {', '.join(missing)} under hosp. Give the address of the "
            "folder that holds hosp."
        )
    if changed_files := [
        name for name, sha256 in _final_sums(base_url).items() if hashes.get(name, sha256) != sha256
    ]:
        discard(sums)
        raise InputError(
            f"{redact_url(base_url)}: its {SUMS} lists other hashes for {', '.join(changed_files)} than this "
            "version has, which is final. Fetch it from PhysioNet, or check the mirror."
        )
    return {name: hashes[name] for name in (LICENSE, *TABLE_FILES.values()) if name in hashes}


def _final_sums(base_url: str) -> dict[str, str]:
    """Return the SHA-256s of the final version at an address; empty for other addresses."""
    path = urlsplit(base_url).path.rstrip("/")
    return next((sums for end, sums in FINAL.items() if path.endswith(f"/{end}")), {})
