"""Reads a provider's table (csv.gz, csv or Parquet) into declared types, or explains what is wrong with it.

Text is read as text and then cast, so that faults are counted by column and values are never quoted.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import polars as pl
import polars.selectors as cs

from pipelines.engine.runs import Runs
from pipelines.reading import parsing
from pipelines.reading.files import (
    SUFFIXES,
    find_file,
    format_problem,
    head,
    is_plain,
    refuse_cut_text,
    require_unchanged,
    translate_errors,
)
from pipelines.reading.lines import count_rows
from pipelines.reading.parsing import DATE, INTEGER, NUMBER, TEXT, TIME
from schemas.errors import InputError
from schemas.io.paths import scan_csv, scan_parquet

__all__ = [
    "DATE",
    "INTEGER",
    "NUMBER",
    "SUFFIXES",
    "TEXT",
    "TIME",
    "Table",
    "batches",
    "count_lines",
    "estimate_rows",
    "find_file",
    "has_column",
    "read",
    "require_columns",
    "translate_errors",
]

ROWS_PER_BATCH = 500_000
_ROWS_LOOKED_AT = 1_000
MOST_IN_SINGLE_QUOTES = 0.001  # of the texts of a column, as for malformed values
FIRST_YEAR, LAST_YEAR = 1900, 2299  # MIMIC-IV's times are shifted past 2100

_WORDS: dict[pl.DataType, str] = {
    INTEGER: "a whole number",
    NUMBER: "a number",
    TEXT: "text",
    DATE: "a date (YYYY-MM-DD)",
    TIME: "a time (YYYY-MM-DD HH:MM:SS, local, without a zone)",
}


@dataclass(frozen=True)
class Table:
    """The columns we read from a table, their types, and the columns that may not be null."""

    columns: Mapping[str, pl.DataType]
    required_columns: tuple[str, ...] = field(default=())

    @property
    def numbers(self) -> list[str]:
        """The columns that hold a whole number in every row."""
        return [name for name in self.required_columns if self.columns[name] == INTEGER]


def find_columns(path: Path, table: Table) -> dict[str, str]:
    """Return our name -> the name in the file for each column, ignoring case and surrounding blanks.

    Raises:
        InputError: the file is empty or unreadable, lacks a column that we read, or has one twice.
    """
    with translate_errors(path):
        names = _scan(path).collect_schema().names()
    names_in_file = defaultdict(list)
    for name in names:
        names_in_file[re.sub(r"_duplicated_\d+$", "", name).strip().lower()].append(name)
    missing = [name for name in table.columns if name not in names_in_file]
    if missing:
        _refuse_missing(path, missing, [name for name in table.columns if name in names_in_file])
    repeats = [name for name in table.columns if len(names_in_file[name]) > 1]
    if repeats:
        raise InputError(
            f"{path.name}: column {', '.join(repeats)} occurs twice, ignoring case ({path}). Keep one."
        )
    return {name: names_in_file[name][0] for name in table.columns}


def _refuse_missing(path: Path, missing: list[str], present: list[str]) -> None:
    if not present and (instead := format_problem(path)):
        raise InputError(f"{path.name}: {instead}".format(path))
    # the message names only columns we know: the first line of a file without a header is a row
    raise InputError(
        f"{path.name}: no column {', '.join(missing)}; it has {', '.join(present) or 'none we read'}. "
        f"Give the table as its provider publishes it ({path})."
    )


def require_columns(path: Path, table: Table) -> None:
    """Raise InputError if the file lacks a column that we read."""
    find_columns(path, table)


def has_column(path: Path, name: str) -> bool:
    """Return whether the file has a column, ignoring case and surrounding blanks."""
    with translate_errors(path):
        return name in [column.strip().lower() for column in _scan(path).collect_schema().names()]


def estimate_rows(path: Path) -> int:
    """Estimate the number of rows from the first bytes of a file, for progress reports."""
    if path.suffix == ".parquet":
        with translate_errors(path):
            return int(scan_parquet(path).select(pl.len()).collect().item())
    with translate_errors(path):
        sample, read = head(path)
        return int(sample.count(b"\n") * path.stat().st_size / max(read, 1))


def read(path: Path, table: Table, *, may_be_empty: bool = False) -> pl.DataFrame:
    """Return all rows of `batches` as one table; for small tables."""
    return pl.concat(batches(path, table, may_be_empty=may_be_empty))


def count_lines(path: Path, table: Table) -> int | None:
    """Return the number of rows of a text table by its lines, including blank lines; None for Parquet.

    Raises:
        InputError: rows could vanish in a cell because of wrong quotes, or the file is damaged.
    """
    return None if path.suffix == ".parquet" else count_rows(path, table.numbers)


def batches(
    path: Path, table: Table, *, rows: int | None = None, may_be_empty: bool = False
) -> Iterator[pl.DataFrame]:
    """Yield the declared columns in their types, some hundred thousand rows at a time, in file order.

    Args:
        path: csv.gz, csv or Parquet.
        table: the columns to read.
        rows: the number of rows by `count_lines`, if they were counted.
        may_be_empty: a table with its header and no rows yields one batch without rows, instead of an error.

    Raises:
        InputError: a column is missing, has values of another type, or nulls that are not allowed; the table has no
            rows, or not `rows` of them; the file is damaged. The message names file, column and count, never a value.
            Faults in values are raised after the last batch, when all of them have been counted.
    """
    with require_unchanged(path):
        names = find_columns(path, table)
        tally = _Tally(path, table)
        with translate_errors(path):
            frame = _scan(path)
            if is_plain(path):
                refuse_cut_text(path, len(frame.collect_schema()))
            columns = _select(frame, names)
            _refuse_types(path, table, columns.collect_schema())
        raw_batches = _raw_batches(columns)
        while True:
            with translate_errors(path):
                raw_batch = next(raw_batches, None)
            if raw_batch is None:
                break
            with translate_errors(path):
                batch = tally.cast(raw_batch)
            if batch.height:
                yield batch
        tally.refuse(rows, may_be_empty=may_be_empty)
        if not tally.rows:
            yield pl.DataFrame(schema=dict(table.columns))


def _raw_batches(columns: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """Yield the columns as stored, some hundred thousand rows at a time, in file order.

    Numbers of a text table stay text until they are cast: polars 2.1's scan into numbers, when it fails at one value,
    may already have yielded rows from after it.
    """
    yield from columns.collect_batches(chunk_size=ROWS_PER_BATCH, engine="streaming")


def _select(frame: pl.LazyFrame, names: Mapping[str, str]) -> pl.LazyFrame:
    """Return the columns under our names, with dictionary-encoded text as text."""
    dictionaries = cs.by_dtype(pl.Categorical, pl.Enum)
    return frame.select(pl.col(name).alias(alias) for alias, name in names.items()).with_columns(
        dictionaries.cast(pl.String)
    )


def _scan(path: Path) -> pl.LazyFrame:
    return scan_parquet(path) if path.suffix == ".parquet" else scan_csv(path, infer_schema=False)


def _refuse_types(path: Path, table: Table, source_types: Mapping[str, pl.DataType]) -> None:
    for name, target in table.columns.items():
        source = source_types[name]
        if not (source in (pl.String, pl.Null) or _same_family(source, target)):
            raise InputError(
                f"{path.name}: column {name} is stored as {source}, but must hold {_WORDS[target]}. "
                "Write it again in that type."
            )


def _same_family(source: pl.DataType, target: pl.DataType) -> bool:
    if target in (INTEGER, NUMBER):
        return source.is_numeric() or source == pl.Boolean
    if isinstance(source, pl.Datetime):
        return target in (TIME, DATE) and source.time_zone is None
    return target == DATE and source == pl.Date


class _Tally:
    """Casts the batches of one file and counts the faults of each column over all batches."""

    def __init__(self, path: Path, table: Table) -> None:
        self._path, self._table, self.rows, self._without_ours = path, table, 0, 0
        self._parsed = 0
        self._faults, self._empty, self._years = Counter[str](), Counter[str](), Counter[str]()
        self._single_quotes = Counter[str]()

    def cast(self, raw: pl.DataFrame) -> pl.DataFrame:
        """Return a batch in the declared types, without blank lines."""
        columns, source_types = self._table.columns, raw.schema
        self._parsed += raw.height
        batch = raw.select(
            parsing.parse_usual(
                pl.col(name), source_types[name], target, repeats=target == TIME and _repeats(raw[name])
            )
            for name, target in columns.items()
        )
        suspect_columns = {
            name: target
            for name, target in columns.items()
            if parsing.is_suspect(raw[name], batch[name], target)
        }
        if suspect_columns:
            fault_counts = raw.select(
                parsing.is_fault(pl.col(name), source_types[name], target).sum()
                for name, target in suspect_columns.items()
            )
            self._faults.update(dict(zip(suspect_columns, fault_counts.row(0), strict=True)))
            lenient_columns = raw.select(
                parsing.parse_lenient(pl.col(name), source_types[name], target)
                for name, target in suspect_columns.items()
            )
            batch = batch.with_columns(lenient_columns)
        if any(batch[name].null_count() for name in self._table.required_columns):
            without_ours = raw.select(pl.all_horizontal(pl.all().is_null())).to_series()
            # drop blank lines; `refuse` checks that they were blank in all columns
            batch = batch.filter(~without_ours)
            self._without_ours += int(without_ours.sum())
        self.rows += batch.height
        self._empty.update({name: batch[name].null_count() for name in self._table.required_columns})
        self._years.update({name: count_outside(batch[name]) for name in _times(columns)})
        self._single_quotes.update(_count_single_quotes(batch, columns))
        return batch

    def refuse(self, rows: int | None, *, may_be_empty: bool) -> None:
        """Raise InputError if the table is empty and may not be, has not as many rows as lines, or has faults."""
        if rows is not None and self._parsed != rows:
            raise InputError(
                f"{self._path.name}: {self._parsed:,} of {rows:,} rows were read "
                f"({self._path}): the others vanished within a cell. Export it with every quote within a cell doubled."
            )
        if self._without_ours and (num_other_rows := self._without_ours - _count_empty_rows(self._path)) > 0:
            self.rows += num_other_rows
            self._empty.update(dict.fromkeys(self._table.required_columns, num_other_rows))
        reason = None if self.rows else format_problem(self._path)
        if not self.rows and (reason or not may_be_empty):
            reason = reason or "the table has no rows ({}). Give the whole table."
            raise InputError(f"{self._path.name}: {reason}".format(self._path))
        problems = [
            f"column {name}: {count:,} of {self.rows:,} {problem}"
            for name, target in self._table.columns.items()
            for count, problem in (
                (self._faults[name], f"values are not {_WORDS[target]}"),
                (self._years[name], f"values lie outside the years {FIRST_YEAR} to {LAST_YEAR}"),
                (self._empty[name] - self._faults[name], "rows have none"),
                (
                    self._single_quotes[name] - int(MOST_IN_SINGLE_QUOTES * self.rows),
                    "values begin with a single quote, which does not protect commas: use double quotes",
                ),
            )
            if count > 0
        ]
        if problems:
            raise InputError(
                f"{self._path.name}: {'; '.join(problems)}. Fix or re-export the table ({self._path})."
            )


def _count_empty_rows(path: Path) -> int:
    """Return the number of rows that are null in all columns of the file: blank lines, or lines of commas only."""
    with translate_errors(path):
        nothing = _scan(path).select(pl.all_horizontal(pl.all().is_null()).sum())
        return int(nothing.collect(engine="streaming").item())


def _repeats(values: pl.Series) -> bool:
    """Return whether most of the first values equal the value before them."""
    sample = values[:_ROWS_LOOKED_AT]
    return 2 * len(Runs([sample])) < len(sample)


def _count_single_quotes(batch: pl.DataFrame, columns: Mapping[str, pl.DataType]) -> dict[str, int]:
    """Return for each text column how many values begin with a single quote followed by more text."""
    texts = [name for name, target in columns.items() if target == TEXT]
    if not texts:
        return {}
    quote_flags = (pl.col(name).str.starts_with("'") & (pl.col(name) != "'") for name in texts)
    counts = batch.select(is_quoted.sum() for is_quoted in quote_flags)
    return dict(zip(texts, counts.row(0), strict=True))


def _times(columns: Mapping[str, pl.DataType]) -> list[str]:
    return [name for name, target in columns.items() if target in (TIME, DATE)]


def count_outside(times: pl.Series) -> int:
    """Return how many times or dates lie outside FIRST_YEAR to LAST_YEAR."""
    first, end = (
        pl.Series([date(FIRST_YEAR, 1, 1), date(LAST_YEAR + 1, 1, 1)]).cast(times.dtype).to_physical()
    )
    values = times.to_physical()  # as integers, because a year may be out of range for datetime
    low, high = values.min(), values.max()
    if low is None or (low >= first and high < end):
        return 0
    return int(((values < first) | (values >= end)).sum())
