"""Checks of files against what is published beside them: SHA256SUMS.txt, and the row counts of synthetic tables.

A file that matches its checksum is trusted; for any other, rows are counted by lines before a parser reads it.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelines.reading.gem import is_gem
from pipelines.reading.tables import count_lines
from pipelines.sources.mimic.tables import READ, TABLES, MimicSource
from schemas.errors import InputError
from schemas.io.hashing import file_sha256
from schemas.io.outputs import write_json

SUMS = "SHA256SUMS.txt"
ROWS = "rows.json"
"""Beside synthetic tables: file name -> [SHA-256, rows], as they were written."""


def read_sums(text: str) -> dict[str, str]:
    """Return file name → SHA-256 for each line in the format of `sha256sum`."""
    lines = re.findall(r"^([0-9a-fA-F]{64})[ \t]+\*?(?:\./)?(\S.*?)\s*$", text, flags=re.MULTILINE)
    return {name: digest.lower() for digest, name in lines}


@dataclass(frozen=True)
class ChecksumComparison:
    """The files of a source compared with their published checksums; both tuples hold file names."""

    sums: Path | None  # None: no checksums are published beside the tables
    matching: int = 0
    differ: tuple[str, ...] = ()
    without_checksum: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """A sentence on the outcome, and what to do."""
        if self.sums is None:
            return f"There is no {SUMS} beside the tables to compare them with."
        if self.differ:
            return (
                f"{', '.join(self.differ)}: differs from its checksum in {self.sums}. Download it again; if it was "
                "changed on purpose, remove the list."
            )
        if self.without_checksum:
            return f"{', '.join(self.without_checksum)}: not in {self.sums}, so that it cannot be checked."
        return f"All {self.matching} tables match their checksums in {self.sums}."


def compare(source: MimicSource, hashes: Mapping[str, str]) -> ChecksumComparison:
    """Compare the hashes that `inspect_raw` took of the tables with SHA256SUMS.txt beside or above `hosp`.

    Raises:
        InputError: the list cannot be read or holds no checksum.
    """
    sums = next(
        (path for folder in (source.hosp.parent, source.hosp) if (path := folder / SUMS).is_file()), None
    )
    if sums is None:
        return ChecksumComparison(sums=None)
    try:
        all_sums = read_sums(sums.read_text(errors="replace"))
    except OSError as error:
        raise InputError(
            f"{SUMS}: cannot be read ({error.strerror}; {sums}). Make it readable, or remove it."
        ) from None
    expected = {
        Path(name).name: digest for name, digest in all_sums.items() if Path(name).parent.name in ("", "hosp")
    }
    if not expected:
        raise InputError(
            f"{SUMS}: no line is a SHA-256 and a file name ({sums}). Download it again, or remove it."
        )
    files = {source.path(table).name: hashes[table] for table in TABLES}
    listed_files = {name: digest for name, digest in files.items() if name in expected}
    differ = tuple(name for name, digest in listed_files.items() if digest != expected[name])
    missing = tuple(name for name in files if name not in expected)
    return ChecksumComparison(
        sums, matching=len(listed_files) - len(differ), differ=differ, without_checksum=missing
    )


def write_rows(folder: Path, rows: Mapping[Path, int]) -> None:
    """Write the row count of each synthetic table beside the tables, valid while the file's hash is the same."""
    digests = {path.name: [file_sha256(path), count] for path, count in rows.items()}
    write_json(folder / ROWS, digests)


def count_tables(source: MimicSource, hashes: Mapping[str, str]) -> dict[str, int]:
    """Return the row counts of the text tables: as recorded where the file is unchanged, else by counting lines.

    A table that matches SHA256SUMS.txt is left out: it is exactly what its provider published.

    Raises:
        InputError: a table has quotes that would swallow rows into one cell.
    """
    recorded_rows, verified_tables = _written_rows(source.hosp.parent), _verified_tables(source, hashes)
    counts = {}
    for name, table in READ.items():
        path = source.path(name)
        digest, rows = recorded_rows.get(path.name, ("", 0))
        if digest == hashes[name]:
            counts[name] = rows
        elif name not in verified_tables and not is_gem(path):
            num_rows = count_lines(path, table)
            counts |= {} if num_rows is None else {name: num_rows}
    return counts


def _written_rows(folder: Path) -> dict[str, tuple[str, int]]:
    """Return what `write_rows` wrote; empty without such a file, or with one of another format."""
    try:
        digests = json.loads((folder / ROWS).read_text())
        return {str(name): (str(digest), int(rows)) for name, (digest, rows) in digests.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _verified_tables(source: MimicSource, hashes: Mapping[str, str]) -> set[str]:
    try:
        comparison = compare(source, hashes)
    except InputError:  # reported by the check `as_published`
        return set()
    unproven = {*comparison.differ, *comparison.without_checksum}
    return {table for table in TABLES if comparison.sums and source.path(table).name not in unproven}
