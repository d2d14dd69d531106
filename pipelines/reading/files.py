"""Which file holds a table, and what it is instead where it cannot be read as one."""

import contextlib
import mmap
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from schemas.errors import InputError
from schemas.io.walk import leads_back

SUFFIXES = (".csv.gz", ".csv", ".parquet")
NATIVE = {
    "icd_cm_9_to_10_mapping": "2018_I9gem.txt",
    "icd_pcs_9_to_10_mapping": "gem_i9pcs.txt",
}
"""The file of CMS that is this crosswalk: always the mapping from ICD-9, of 2018, the last year there was one."""
MAY_NOT_BE_READ = "may not be read ({}). Give yourself permission to read it."
LEADS_NOWHERE = "is a link that leads nowhere ({}). Give the file itself."
LEADS_BACK = "is a link back to a folder it lies in ({}). Give the file itself, or remove the link."
IS_A_FOLDER = "is a folder ({}). Give the file itself."
IS_NO_FILE = "is no file ({}). Give the file itself."
_HEAD_BYTES, _TAIL_BYTES = 1 << 18, 1 << 16
_GZIP, _ZIP = b"\x1f\x8b", b"PK\x03\x04"
_DELIMITERS = {b";": "semicolons", b"\t": "tabs", b"|": "bars"}


def find_file(folder: Path, table: str) -> Path | None:
    """Return the one of <table>.csv.gz, .csv, .parquet in `folder`; of a crosswalk, also CMS's own text.

    Raises:
        InputError: there are several, or it is a folder, a pipe, or a link that leads nowhere.
    """
    names_of = [f"{table}{suffix}" for suffix in SUFFIXES] + ([NATIVE[table]] if table in NATIVE else [])
    paths = [path for name in names_of if os.path.lexists(path := folder / name)]
    if len(paths) > 1:
        names = ", ".join(path.name for path in paths)
        raise InputError(f"{table}: is there {len(paths)} times, as {names} ({folder}). Keep one of them.")
    for path in paths:
        require_file(path, path.name)
    return next(iter(paths), None)


def require_file(path: Path, name: str) -> None:
    """Raise InputError where something else stands at `path`, which messages call `name`."""
    if problem := problem_at(path):
        raise InputError(f"{name}: {problem.format(path)}")


def problem_at(path: Path) -> str | None:
    """Return what stands at a path instead of a file, and what to do; None where it is a file."""
    if os.path.isfile(path):
        return None
    if os.path.islink(path) and not os.path.exists(path):
        return LEADS_NOWHERE
    if leads_back(path):
        return LEADS_BACK
    if not os.path.lexists(path) or (os.path.isdir(path) and not _may_be_listed(path)):
        return MAY_NOT_BE_READ
    return IS_A_FOLDER if os.path.isdir(path) else IS_NO_FILE


def _may_be_listed(folder: Path) -> bool:
    try:
        with os.scandir(folder):
            return True
    except PermissionError:
        return False


def head(path: Path) -> tuple[bytes, int]:
    """Return the first bytes of the text, unpacked where they are a gzip, and how many of the file's they are."""
    with path.open("rb") as file:
        data = file.read(_HEAD_BYTES)
    if not data.startswith(_GZIP):
        return data, len(data)
    with contextlib.suppress(zlib.error):  # a damaged file is told when it is read
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(data), len(data)
    return b"", len(data)


def is_plain(path: Path) -> bool:
    """Say whether a table of text is not packed, whatever its name says."""
    if path.suffix == ".parquet":
        return False
    with path.open("rb") as file:
        return not file.read(2).startswith(_GZIP)


def format_problem(path: Path) -> str | None:
    """Return what a file is instead of comma-separated UTF-8 text, and what to do; None if that is not known."""
    if path.suffix == ".parquet":
        return None
    start, _ = head(path)
    if start.startswith(_ZIP):
        return "is a zip archive ({}). Unpack it, or pack the table with gzip."
    if start.startswith(_GZIP):
        return "is compressed twice ({}). Decompress it once."
    if start.startswith((b"\xff\xfe", b"\xfe\xff")) or start[1:200:2].count(0) > 50:
        return "is UTF-16 text ({}). Write it as UTF-8."
    if b"\r" in start and b"\n" not in start:
        return "has lines that end in carriage returns alone ({}). End each line with a line feed."
    header = start.split(b"\n", 1)[0]
    for delimiter, word in _DELIMITERS.items():
        if delimiter in header and b"," not in header:
            return f"has columns separated by {word} ({{}}). Write it as comma-separated text."
    return None


@contextmanager
def translate_errors(path: Path, text: str = "comma-separated UTF-8 text") -> Iterator[None]:
    """Turn what polars raises while reading `path` into an InputError without the row it quotes.

    Args:
        path: the file that is read.
        text: what a file that is not Parquet should hold.
    """
    try:
        yield
    except OSError as error:
        raise InputError(f"{path.name}: {_unreadable_reason(error)}".format(path)) from None
    except pl.exceptions.NoDataError:
        raise InputError(f"{path.name}: the file is empty ({path}). Copy or download it again.") from None
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        kind = "Parquet" if path.suffix == ".parquet" else text
        quote = ", or a quote is never closed" if kind.startswith("comma") else ""
        reason = format_problem(path) or (
            "is not UTF-8 text throughout ({}). Write it as UTF-8."
            if "utf-8" in str(error)
            else f"cannot be parsed as {kind} ({{}}): it may be damaged{quote}. "
            "Copy, export or download it again."
        )
        raise InputError(f"{path.name}: {reason}".format(path)) from None


def _unreadable_reason(error: OSError) -> str:
    text = str(error)
    if "ermission denied" in text:
        return MAY_NOT_BE_READ
    if "end of file" in text:
        return "the gzip ends too early: the file is truncated ({}). Copy or download it again."
    if any(word in text for word in ("corrupt", "gzip header", "deflate")):
        return "the gzip is damaged ({}). Copy or download it again."
    return "cannot be read ({}). Copy or download the file again."


@contextmanager
def require_unchanged(path: Path) -> Iterator[None]:
    """Raise InputError if the file is another at the end of the block, whatever else was wrong with it then."""

    def look() -> tuple[int, int, int]:
        stat = path.stat()
        return stat.st_ino, stat.st_size, stat.st_mtime_ns

    def refuse() -> None:
        if look() != stamp:
            raise InputError(
                f"{path.name}: changed while it was being read ({path}). Run again when its copy has ended."
            ) from None

    stamp = look()
    try:
        yield
    except InputError:
        refuse()
        raise
    refuse()


def refuse_cut_text(path: Path, columns: int) -> None:
    """Refuse a plain .csv that holds a block of zeros or ends within a row: it has no checksum that would tell.

    Raises:
        InputError: its last line has no end and fewer than `columns` fields, or a byte is zero.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data.find(b"\0") >= 0:
            raise InputError(
                f"{path.name}: holds zero bytes ({path}): its disk or its copy is damaged. "
                "Copy or download it again."
            )
        last = data[max(len(data) - _TAIL_BYTES, 0) :].rsplit(b"\n", 1)[-1]
    if last and b'"' not in last and last.count(b",") + 1 < columns:
        raise InputError(
            f"{path.name}: the last line has {last.count(b',') + 1} of {columns} fields and no end ({path}): the file "
            "is cut. Copy or download it again."
        )
