"""Pass paths to polars and DuckDB literally, whatever characters are in the name of a folder.

Both treat `*`, `?` and `[` in a path as a pattern and read what matches it: for `in[1]`, its neighbour `in1`. DuckDB
also treats a folder `code=5` as a column, `\\` as `/`, and text after a `?` as the query of a URL. No other module
passes them a path (`tests/system/test_paths.py` checks that); Arrow and Python open paths literally.
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
    """Return a lazy frame of these Parquet files; only the columns and rows it needs are read."""
    paths = [files] if isinstance(files, Path) else files
    return pl.scan_parquet([file.absolute() for file in paths], glob=False, hive_partitioning=False)


def scan_csv(file: Path, **options: Any) -> pl.LazyFrame:
    """Return a lazy frame of one CSV file, compressed or not; `options` are those of polars."""
    return pl.scan_csv(file.absolute(), glob=False, **options)


def scan_lines(file: Path, name: str) -> pl.LazyFrame:
    """Return a lazy frame of the lines of one text file, in a column of this name."""
    return pl.scan_lines(file.absolute(), name=name, glob=False)


class DuckDBPaths:
    """Convert paths to names DuckDB reads literally; for odd paths these are links that are removed after the block."""

    def __init__(self) -> None:
        self._stack, self._links = ExitStack(), dict[Path, Path]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def parquet(self, *files: Path, options: str = "") -> str:
        """Return SQL that reads these Parquet files."""
        names = ", ".join(_sql_literal(self._name(file.absolute())) for file in files)
        return f"read_parquet([{names}], {_NO_HIVE}{options and ', '}{options})"

    def csv(self, file: Path, options: str) -> str:
        """Return SQL that reads one CSV file, compressed if its name ends in .gz."""
        compression = "gzip" if file.suffix == ".gz" else "none"
        name = _sql_literal(self._name(file.absolute()))
        return f"read_csv({name}, compression = '{compression}', {_NO_HIVE}, {options})"

    def database(self, file: Path) -> str:
        """Return the name by which to connect to a database.

        Raises:
            InputError: DuckDB would look for the write-ahead log beside the database under another name.
        """
        if {"?", "\\"} & set(str(file.resolve())):
            raise InputError(
                f"{file}: DuckDB cannot open a database if the path contains ? or \\. Rename the file or its folder."
            )
        return str(file.absolute())

    def views(self, folder: Path) -> str:
        """Return the name of a new database for views, in a folder or, if its path is odd, in a temporary one."""
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
        """Return a link with a plain name; it contains no patient data, so it may be in the temporary folder."""
        if path not in self._links:
            folder = self._stack.enter_context(TemporaryDirectory(prefix="nest-"))
            self._links[path] = Path(folder) / f"link{re.sub('[^.a-z]', '', ''.join(path.suffixes[-2:]))}"
            self._links[path].symlink_to(path)
        return self._links[path]


def _sql_literal(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"
