"""Finds the file of a table and explains why a file cannot be read as one."""

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
"""The CMS text file of each crosswalk: the mapping from ICD-9 of 2018, the last one published."""
MAY_NOT_BE_READ = "may not be read ({}). Give yourself permission to read it."
LEADS_NOWHERE = "is a broken link ({}). Give the file itself."
LEADS_BACK = "is a link to a folder that contains it ({}). Give the file itself, or remove the link."
IS_A_FOLDER = "is a folder ({}). Give the file itself."
IS_NO_FILE = "is not a regular file ({}). Give the file itself."
_HEAD_BYTES, _TAIL_BYTES = 1 << 18, 1 << 16
_GZIP, _ZIP = b"\x1f\x8b", b"PK\x03\x04"
_DELIMITERS = {b";": "semicolons", b"\t": "tabs", b"|": "bars"}


def find_file(folder: Path, table: str) -> Path | None:
    """Return <table>.csv.gz, .csv or .parquet in `folder`, or the CMS text of a crosswalk; None if there is none.

    Raises:
        InputError: several of them exist, or the path is a folder, a pipe or a broken link.
    """
    candidates = [f"{table}{suffix}" for suffix in SUFFIXES] + ([NATIVE[table]] if table in NATIVE else [])
    paths = [path for name in candidates if os.path.lexists(path := folder / name)]
    if len(paths) > 1:
        names = ", ".join(path.name for path in paths)
        raise InputError(f"{table}: found {len(paths)} times, as {names} ({folder}). Keep one of them.")
    for path in paths:
        require_file(path, path.name)
    return next(iter(paths), None)


def require_file(path: Path, name: str) -> None:
    """Raise InputError if `path` is not a file; the message calls it `name`."""
    if problem := problem_at(path):
        raise InputError(f"{name}: {problem.format(path)}")


def problem_at(path: Path) -> str | None:
    """Return why a path is not a readable file, and what to do; None if it is a file."""
    if os.path.isfile(path):
        return None
    if os.path.islink(path) and not os.path.exists(path):
        return LEADS_NOWHERE
    if leads_back(path):
        return LEADS_BACK
    if not os.path.lexists(path) or (os.path.isdir(path) and not _is_listable(path)):
        return MAY_NOT_BE_READ
    return IS_A_FOLDER if os.path.isdir(path) else IS_NO_FILE


def _is_listable(folder: Path) -> bool:
    try:
        with os.scandir(folder):
            return True
    except PermissionError:
        return False


def head(path: Path) -> tuple[bytes, int]:
    """Return the first bytes of the text, decompressed if gzipped, and the number of file bytes they come from."""
    with path.open("rb") as file:
        data = file.read(_HEAD_BYTES)
    if not data.startswith(_GZIP):
        return data, len(data)
    with contextlib.suppress(zlib.error):  # a damaged file is reported when it is read
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(data), len(data)
    return b"", len(data)


def is_plain(path: Path) -> bool:
    """Return whether a text table is uncompressed, regardless of its name."""
    if path.suffix == ".parquet":
        return False
    with path.open("rb") as file:
        return not file.read(2).startswith(_GZIP)


def format_problem(path: Path) -> str | None:
    """Return why a file is not comma-separated UTF-8 text, and what to do; None if no reason is known."""
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
        return "has lines that end in a carriage return only ({}). End each line with a line feed."
    header = start.split(b"\n", 1)[0]
    for delimiter, word in _DELIMITERS.items():
        if delimiter in header and b"," not in header:
            return f"has columns separated by {word} ({{}}). Write it as comma-separated text."
    return None


@contextmanager
def translate_errors(path: Path, text: str = "comma-separated UTF-8 text") -> Iterator[None]:
    """Turn errors of polars while reading `path` into an InputError that does not quote rows.

    Args:
        path: the file that is read.
        text: the expected content of a file that is not Parquet.
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
            "is not entirely UTF-8 text ({}). Write it as UTF-8."
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
    """Raise InputError if the file changes during the block, in preference to other errors about it."""

    def look() -> tuple[int, int, int]:
        stat = path.stat()
        return stat.st_ino, stat.st_size, stat.st_mtime_ns

    def refuse() -> None:
        if look() != stamp:
            raise InputError(
                f"{path.name}: changed while it was being read ({path}). Run again when the copy is complete."
            ) from None

    stamp = look()
    try:
        yield
    except InputError:
        refuse()
        raise
    refuse()


def refuse_cut_text(path: Path, columns: int) -> None:
    """Refuse a plain .csv with zero bytes or a cut last row: unlike gzip, it has no checksum that would reveal damage.

    Raises:
        InputError: the last line has no line end and fewer than `columns` fields, or a byte is zero.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data.find(b"\0") >= 0:
            raise InputError(
                f"{path.name}: holds zero bytes ({path}): the disk or the copy is damaged. "
                "Copy or download it again."
            )
        last = data[max(len(data) - _TAIL_BYTES, 0) :].rsplit(b"\n", 1)[-1]
    if last and b'"' not in last and last.count(b",") + 1 < columns:
        raise InputError(
            f"{path.name}: the last line has {last.count(b',') + 1} of {columns} fields and no line end ({path}): the "
            "file is cut. Copy or download it again."
        )
