"""Read a provider's table as csv.gz, csv or Parquet into declared types, or say what is wrong with it.

Text is read as text and then cast, so that a fault is counted by column and its value never quoted.
"""

import contextlib
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from schemas.errors import InputError

INTEGER, NUMBER, TEXT, DATE = pl.Int64(), pl.Float64(), pl.String(), pl.Date()
TIME = pl.Datetime("us")
ROWS_PER_BATCH = 500_000
_SAMPLED_BYTES = 1 << 18
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


def estimate_rows(path: Path) -> int:
    """Return about how many rows a file has, to say how long it will take: by the lines in its first bytes."""
    if path.suffix == ".parquet":
        with rewording(path):
            return int(pl.scan_parquet(path).select(pl.len()).collect().item())
    read = min(_SAMPLED_BYTES, path.stat().st_size)
    with path.open("rb") as file:
        sample = file.read(read)
    if path.suffix == ".gz":
        with contextlib.suppress(zlib.error):  # a damaged file is told when it is read
            sample = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(sample)
    return int(sample.count(b"\n") * path.stat().st_size / max(read, 1))


def read(path: Path, table: Table) -> pl.DataFrame:
    """Return all rows of `batches` at once, for a table that is small."""
    return pl.concat(batches(path, table))


def batches(path: Path, table: Table) -> Iterator[pl.DataFrame]:
    """Yield the declared columns in their types, some hundred thousand rows at a time, in the file's order.

    Raises:
        InputError: a column is missing, holds what its type does not allow, or is null where it may not be;
            the table has no rows; the file is damaged. It names file, column and count, never a value. Faults in
            values are raised after the last batch, when they have all been counted.
    """
    require_columns(path, table)
    with rewording(path):
        scanned = _scan(path).select(*table.columns)
        stored = scanned.collect_schema()
        typed = [_typed(name, stored[name], wanted, path) for name, wanted in table.columns.items()]
        read_batches = iter(scanned.collect_batches(chunk_size=ROWS_PER_BATCH, engine="streaming"))
    rows, faults, empty = 0, Counter[str](), Counter[str]()
    while True:
        with rewording(path):
            found = next(read_batches, None)
            if found is None:
                break
            batch = found.select(typed)
            faults.update(_count_faults(found, batch, table))
        rows += batch.height
        empty.update({name: batch[name].null_count() for name in table.required})
        if batch.height:
            yield batch
    if not rows:
        raise InputError(f"{path.name}: the table has no rows ({path}). Give the whole table.")
    _refuse_faults(rows, faults, empty, path, table)


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


def _count_faults(found: pl.DataFrame, typed: pl.DataFrame, table: Table) -> dict[str, int]:
    """Return the faults by column; looked for only where a value got lost, or could have been cut short."""
    suspects = [
        name
        for name, wanted in table.columns.items()
        if typed[name].null_count() > found[name].null_count()
        or (wanted == INTEGER and found.schema[name].is_float())
    ]
    if not suspects:
        return {}
    judged = found.select(_is_fault(name, found.schema[name], table.columns[name]).sum() for name in suspects)
    return dict(zip(suspects, judged.row(0), strict=True))


def _refuse_faults(
    rows: int, faults: Mapping[str, int], empty: Mapping[str, int], path: Path, table: Table
) -> None:
    said = [
        f"column {name}: {faults[name]:,} of {rows:,} values are not {_WORDS[wanted]}"
        for name, wanted in table.columns.items()
        if faults[name]
    ]
    said += [f"column {name}: {count:,} of {rows:,} rows have none" for name, count in empty.items() if count]
    if said:
        raise InputError(f"{path.name}: {'; '.join(said)}. Mend or re-export the table ({path}).")
