"""Read a provider's table as csv.gz, csv or Parquet into declared types, or say what is wrong with it.

Text is read as text and then cast, so that a fault is counted by column and its value never quoted.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from schemas.errors import InputError

INTEGER, NUMBER, TEXT, DATE = pl.Int64(), pl.Float64(), pl.String(), pl.Date()
TIME = pl.Datetime("us")
SUFFIXES = (".csv.gz", ".csv", ".parquet")

_WORDS: dict[pl.DataType, str] = {
    INTEGER: "a whole number",
    NUMBER: "a number",
    TEXT: "text",
    DATE: "a date (YYYY-MM-DD)",
    TIME: "a time (YYYY-MM-DD HH:MM:SS)",
}


@dataclass(frozen=True)
class Table:
    """The columns we read of a table, their types, and those that may not be null."""

    columns: Mapping[str, pl.DataType]
    required: tuple[str, ...] = field(default=())


def find_file(folder: Path, table: str) -> Path | None:
    """Return the first of <table>.csv.gz, .csv, .parquet in `folder`."""
    candidates = (folder / f"{table}{suffix}" for suffix in SUFFIXES)
    return next((path for path in candidates if path.exists()), None)


@contextmanager
def rewording(path: Path) -> Iterator[None]:
    """Turn what polars raises while reading `path` into an InputError without the row it quotes."""
    try:
        yield
    except OSError as error:
        reason = (
            "the gzip ends too early: the file is truncated"
            if "end of file" in str(error)
            else "cannot be read"
        )
        raise InputError(f"{path.name}: {reason} ({path}). Copy or download the file again.") from None
    except pl.exceptions.NoDataError:
        raise InputError(f"{path.name}: the file is empty ({path}). Copy or download it again.") from None
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        kind = "Parquet" if path.suffix == ".parquet" else "comma-separated UTF-8 text"
        raise InputError(
            f"{path.name}: cannot be parsed as {kind} ({path}). It may be damaged or in another format; "
            "copy or download it again."
        ) from None


def column_names(path: Path) -> list[str]:
    """Return the columns the file holds.

    Raises:
        InputError: the file is empty or unreadable.
    """
    with rewording(path):
        return _scan(path).collect_schema().names()


def require_columns(path: Path, table: Table) -> None:
    """Raise InputError when the file lacks a column we read."""
    found = column_names(path)
    missing = [name for name in table.columns if name not in found]
    if missing:
        # only names we expect are said: the first line of a file without a header is a row
        present = [name for name in table.columns if name in found]
        raise InputError(
            f"{path.name}: no column {', '.join(missing)}; it has {', '.join(present) or 'none we read'}. "
            f"Give the table as its provider publishes it ({path})."
        )


def read(path: Path, table: Table) -> pl.DataFrame:
    """Return the declared columns in their types.

    Raises:
        InputError: a column is missing, holds what its type does not allow, or is null where it may not be;
            the table has no rows; the file is damaged. It names file, column and count, never a value.
    """
    require_columns(path, table)
    with rewording(path):
        scanned = _scan(path).select(*table.columns)
        stored = scanned.collect_schema()
        typed = [_typed(name, stored[name], wanted, path) for name, wanted in table.columns.items()]
        faults = [_is_fault(name, stored[name], wanted) for name, wanted in table.columns.items()]
        rows = scanned.select(*typed, *faults).collect(engine="streaming")
    if not rows.height:
        raise InputError(f"{path.name}: the table has no rows ({path}). Give the whole table.")
    _refuse_faults(rows, path, table)
    return rows.select(*table.columns)


def _scan(path: Path) -> pl.LazyFrame:
    return pl.scan_parquet(path) if path.suffix == ".parquet" else pl.scan_csv(path, infer_schema=False)


def _typed(name: str, stored: pl.DataType, wanted: pl.DataType, path: Path) -> pl.Expr:
    column = pl.col(name)
    if stored == pl.String:
        return _parse(column, wanted).alias(name)
    if stored == pl.Null or isinstance(stored, pl.Categorical | pl.Enum) or _same_family(stored, wanted):
        return column.cast(wanted, strict=False)
    raise InputError(
        f"{path.name}: column {name} is stored as {stored}, but {_WORDS[wanted]} is needed. "
        "Write it again in that type."
    )


def _same_family(stored: pl.DataType, wanted: pl.DataType) -> bool:
    if wanted in (INTEGER, NUMBER):
        return stored.is_numeric() or stored == pl.Boolean
    if isinstance(stored, pl.Datetime):
        return wanted in (TIME, DATE) and stored.time_zone is None
    return wanted == DATE and stored == pl.Date


def _parse(column: pl.Expr, wanted: pl.DataType) -> pl.Expr:
    if wanted == TEXT:
        return pl.when(column != "").then(column)
    as_time = column.str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us", strict=False)
    if wanted == TIME:
        return as_time
    if wanted == DATE:
        return pl.coalesce(column.str.to_date("%Y-%m-%d", strict=False), as_time.dt.date())
    return column.cast(wanted, strict=False)


def _is_fault(name: str, stored: pl.DataType, wanted: pl.DataType) -> pl.Expr:
    """Say where a value is present but not of the wanted type; a quoted empty text counts as null."""
    column = pl.col(name)
    present = column.is_not_null()
    if stored == pl.String:
        fault = (column != "") & _parse(column, wanted).is_null()
    elif wanted == INTEGER and stored.is_float():
        whole = column.cast(INTEGER, strict=False)
        fault = present & (whole.is_null() | (whole.cast(stored) != column))
    else:
        fault = present & column.cast(wanted, strict=False).is_null()
    return fault.fill_null(False).alias(f"fault {name}")


def _refuse_faults(rows: pl.DataFrame, path: Path, table: Table) -> None:
    faults = rows.select(pl.col(f"fault {name}").sum() for name in table.columns).row(0)
    said = [
        f"column {name}: {count:,} of {rows.height:,} values are not {_WORDS[wanted]}"
        for (name, wanted), count in zip(table.columns.items(), faults, strict=True)
        if count
    ]
    empty = [(name, rows[name].null_count()) for name in table.required]
    said += [f"column {name}: {count:,} of {rows.height:,} rows have none" for name, count in empty if count]
    if said:
        raise InputError(f"{path.name}: {'; '.join(said)}. Mend or re-export the table ({path}).")
