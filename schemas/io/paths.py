"""A path is a path: whatever stands in a folder's name, polars and DuckDB open that folder and no other.

Both take `*`, `?` and `[` in a path for a pattern and read what matches it: of `in[1]`, its neighbour `in1`. DuckDB
also takes a folder `code=5` for a column, `\\` for `/`, and what follows a `?` for the query of an address. No other
module hands them a path (`tests/system/test_paths.py` looks); Arrow and Python open what they are given.
"""

import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import polars as pl

from schemas.errors import InputError

_PLAIN = re.compile(r"[\w./ -]+")
_NO_HIVE = "hive_partitioning = false"


def scan_parquet(files: Path | Sequence[Path]) -> pl.LazyFrame:
    """Return the rows of these Parquet files, of which only what is asked for is read."""
    paths = [files] if isinstance(files, Path) else files
    return pl.scan_parquet([file.absolute() for file in paths], glob=False, hive_partitioning=False)


def scan_csv(file: Path, **options: Any) -> pl.LazyFrame:
    """Return the rows of one file of text, packed or not; `options` are polars'."""
    return pl.scan_csv(file.absolute(), glob=False, **options)


def scan_lines(file: Path, name: str) -> pl.LazyFrame:
    """Return the lines of one file of text in a column of this name."""
    return pl.scan_lines(file.absolute(), name=name, glob=False)


class DuckDBPaths:
    """Names of files that DuckDB takes as they are: paths, or for odd ones links to them that go with the block."""

    def __init__(self) -> None:
        self._stack, self._links = ExitStack(), dict[Path, Path]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def parquet(self, *files: Path, options: str = "") -> str:
        """Return SQL that reads these Parquet files."""
        names = ", ".join(_quoted(self._name(file.absolute())) for file in files)
        return f"read_parquet([{names}], {_NO_HIVE}{options and ', '}{options})"

    def csv(self, file: Path, options: str) -> str:
        """Return SQL that reads one file of comma-separated text, packed if its name ends in .gz."""
        compression = "gzip" if file.suffix == ".gz" else "none"
        return f"read_csv({_quoted(self._name(file.absolute()))}, compression = '{compression}', {_NO_HIVE}, {options})"

    def database(self, file: Path) -> str:
        """Return the name to connect to a database by.

        Raises:
            InputError: DuckDB would look elsewhere for the log of what was last written, which lies beside it.
        """
        if {"?", "\\"} & set(str(file.resolve())):
            raise InputError(
                f"{file}: DuckDB cannot open a database where a folder or the file has ? or \\ in its name. Rename it."
            )
        return str(file.absolute())

    def views(self, folder: Path) -> str:
        """Return the name of a new database for views alone: in a folder, or where that is odd in the temporary one."""
        if not _PLAIN.fullmatch(str(folder.absolute())):
            folder = Path(self._stack.enter_context(TemporaryDirectory(prefix="nest-")))
        return str(folder.absolute() / "views.duckdb")

    def folder(self, folder: Path) -> str:
        """Return the name of a folder."""
        return self._name(folder.absolute())

    def _name(self, path: Path) -> str:
        if _PLAIN.fullmatch(str(path)):
            return str(path)
        return str(
            self._linked(path.parent) / path.name if _PLAIN.fullmatch(path.name) else self._linked(path)
        )

    def _linked(self, path: Path) -> Path:
        """Return a link under a plain name; it holds nothing of a patient's and may lie in the temporary folder."""
        if path not in self._links:
            folder = self._stack.enter_context(TemporaryDirectory(prefix="nest-"))
            self._links[path] = Path(folder) / f"link{re.sub('[^.a-z]', '', ''.join(path.suffixes[-2:]))}"
            self._links[path].symlink_to(path)
        return self._links[path]


def _quoted(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"
