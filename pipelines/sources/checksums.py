"""The SHA256SUMS.txt a provider lays beside its files: read, and held against the files that are here."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelines.sources.mimic_tables import TABLES, MimicSource
from schemas.errors import InputError

SUMS = "SHA256SUMS.txt"


def read_sums(text: str) -> dict[str, str]:
    """Return file name → SHA-256 of every line that is a sum and a name, as `sha256sum` writes them."""
    lines = re.findall(r"^([0-9a-fA-F]{64})[ \t]+\*?(?:\./)?(\S.*?)\s*$", text, flags=re.MULTILINE)
    return {name: digest.lower() for digest, name in lines}


@dataclass(frozen=True)
class Comparison:
    """The files of a source against the sums beside them; both tuples hold file names."""

    sums: Path | None  # None: there is no such list
    same: int = 0
    differ: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """Say what was found, and what to do."""
        if self.sums is None:
            return f"There is no {SUMS} beside the tables to compare them with."
        if self.differ:
            return (
                f"{', '.join(self.differ)}: not the file {self.sums} promises. Download it again; where it was changed "
                "on purpose, remove the list."
            )
        if self.unlisted:
            return (
                f"{', '.join(self.unlisted)}: not in {self.sums}, so that nothing says whether it is whole."
            )
        return f"All {self.same} tables are as {self.sums} promises."


def compare(source: MimicSource, hashes: Mapping[str, str]) -> Comparison:
    """Hold the hashes of the tables, as `inspect_raw` took them, against SHA256SUMS.txt beside or above `hosp`.

    Raises:
        InputError: the list holds no sum.
    """
    sums = next(
        (path for folder in (source.hosp.parent, source.hosp) if (path := folder / SUMS).is_file()), None
    )
    if sums is None:
        return Comparison(sums=None)
    try:
        listed_there = read_sums(sums.read_text(errors="replace"))
    except OSError as error:
        raise InputError(
            f"{SUMS}: cannot be read ({error.strerror}; {sums}). Mend it, or remove it."
        ) from None
    promised = {
        Path(name).name: digest
        for name, digest in listed_there.items()
        if Path(name).parent.name in ("", "hosp")
    }
    if not promised:
        raise InputError(
            f"{SUMS}: no line is a SHA-256 and a file name ({sums}). Download it again, or remove it."
        )
    files = {source.path(table).name: hashes[table] for table in TABLES}
    listed = {name: digest for name, digest in files.items() if name in promised}
    differ = tuple(name for name, digest in listed.items() if digest != promised[name])
    unlisted = tuple(name for name in files if name not in promised)
    return Comparison(sums, same=len(listed) - len(differ), differ=differ, unlisted=unlisted)
