"""Ways to damage a table: its bytes, its text, its cells or its rows, or by writing it as Parquet.

Each function returns a `Damage`, which takes the folder of the input, changes files in it and knows nothing of readers.
"""

import csv
import gzip
import io
from collections.abc import Callable, Iterable
from pathlib import Path

import polars as pl

from tests.support.raw_tables import CROSSWALKS

Damage = Callable[[Path], None]
Row = dict[str, str]


def file_of(raw: Path, table: str) -> Path:
    return raw / ("vocab" if table in CROSSWALKS else "hosp") / f"{table}.csv.gz"


def body_of(raw: Path, table: str) -> bytes:
    return gzip.decompress(file_of(raw, table).read_bytes())


def rows_of(raw: Path, table: str) -> list[Row]:
    return list(csv.DictReader(io.StringIO(body_of(raw, table).decode(), newline="")))


def write_rows(raw: Path, table: str, columns: Iterable[str], rows: Iterable[Row]) -> None:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(columns), extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    file_of(raw, table).write_bytes(gzip.compress(text.getvalue().encode(), 1))


# --- bytes --------------------------------------------------------------------------------------------------------


def change_compressed(table: str, change: Callable[[bytes], bytes]) -> Damage:
    """Return a damage that changes the bytes of the .csv.gz itself."""

    def damage(raw: Path) -> None:
        path = file_of(raw, table)
        path.write_bytes(change(path.read_bytes()))

    return damage


def body(table: str, change: Callable[[bytes], bytes]) -> Damage:
    """Return a damage that changes the bytes of the uncompressed text."""

    def damage(raw: Path) -> None:
        file_of(raw, table).write_bytes(gzip.compress(change(body_of(raw, table)), 1))

    return damage


def as_plain_csv(table: str, change: Callable[[bytes], bytes] = bytes) -> Damage:
    """Return a damage that replaces the .csv.gz by a plain .csv with changed bytes."""

    def damage(raw: Path) -> None:
        path = file_of(raw, table)
        path.with_suffix("").write_bytes(change(body_of(raw, table)))
        path.unlink()

    return damage


def flip(place: float, bit: int = 4) -> Callable[[bytes], bytes]:
    """Return a change that flips one bit, at a share of the length or, if negative, at bytes before the end."""

    def change(data: bytes) -> bytes:
        at = len(data) + int(place) if place < 0 else int(place * len(data))
        return data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]

    return change


def lines(table: str, change: Callable[[list[bytes]], list[bytes]]) -> Damage:
    """Return a damage that changes the physical lines, including line ends; the first is the header."""
    return body(table, lambda data: b"".join(change(data.splitlines(keepends=True))))


def line_of(text_lines: list[bytes], holds: Callable[[list[bytes]], bool]) -> int:
    """Return the index of the first complete unquoted row in the second half for which `holds` is true."""
    width = text_lines[0].count(b",")
    for place in range(len(text_lines) // 2, len(text_lines)):
        line = text_lines[place]
        if line.count(b",") == width and b'"' not in line and holds(line.rstrip(b"\r\n").split(b",")):
            return place
    raise LookupError("no such line")


def file_system(change: Callable[[Path], None], table: str) -> Damage:
    """Return a damage of the file as such, e.g. one that replaces it by a folder, a link or a pipe."""
    return lambda raw: change(file_of(raw, table))


# --- cells and rows -----------------------------------------------------------------------------------------------


def cells(
    table: str, column: str, change: str | Callable[[str], str], count: int | None = None, empty: bool = False
) -> Damage:
    """Return a damage that changes the first `count` (None: all) non-empty cells of a column, or its empty ones."""

    def damage(raw: Path) -> None:
        rows = rows_of(raw, table)
        matches = [row for row in rows if (row[column] == "") is empty][:count]
        assert count is None or len(matches) == count
        for row in matches:
            row[column] = change if isinstance(change, str) else change(row[column])
        write_rows(raw, table, rows[0], rows)

    return damage


def rows(table: str, change: Callable[[list[Row]], list[Row]]) -> Damage:
    """Return a damage that changes the list of rows."""

    def damage(raw: Path) -> None:
        records = rows_of(raw, table)
        write_rows(raw, table, list(records[0]), change(records))

    return damage


def columns(
    table: str, change: Callable[[list[str]], list[str]], rename: Callable[[str], str] = str
) -> Damage:
    """Return a damage that selects, reorders and renames columns; columns that do not exist are empty."""

    def damage(raw: Path) -> None:
        records = rows_of(raw, table)
        names = change(list(records[0]))
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow(map(rename, names))
        writer.writerows([row.get(name, "") for name in names] for row in records)
        file_of(raw, table).write_bytes(gzip.compress(text.getvalue().encode(), 1))

    return damage


def add_copies(
    table: str, like: Callable[[Row], bool], count: int = 1, key: str | None = None, **values: str
) -> Damage:
    """Return a damage that appends `count` copies of the first row like `like`, with other values and unique keys."""

    def change(records: list[Row]) -> list[Row]:
        first = next(row for row in records if like(row))
        keys = [{} if key is None else {key: str(900_000 + number)} for number in range(count)]
        return [*records, *({**first, **values, **key_value} for key_value in keys)]

    return rows(table, change)


def repeat_rows(table: str, like: Callable[[Row], bool], count: int, **values: str) -> Damage:
    """Return a damage that appends copies of the first `count` rows like `like`, with other values."""

    def change(records: list[Row]) -> list[Row]:
        matches = [row for row in records if like(row)][:count]
        assert len(matches) == count
        return [*records, *({**row, **values} for row in matches)]

    return rows(table, change)


def combine(*damages: Damage) -> Damage:
    """Return a damage that applies several damages in order."""

    def damage(raw: Path) -> None:
        for apply in damages:
            apply(raw)

    return damage


def nothing(raw: Path) -> None:
    """Leave the input unchanged."""


# --- Parquet ------------------------------------------------------------------------------------------------------


def parquet(table: str, **types: pl.DataType | pl.Expr) -> Damage:
    """Return a damage that writes the table as Parquet, with some columns cast or computed; empty cells are null."""

    def damage(raw: Path) -> None:
        path = file_of(raw, table)
        frame = pl.read_csv(io.BytesIO(body_of(raw, table)), infer_schema=False)
        expressions = {
            name: kind if isinstance(kind, pl.Expr) else as_type(name, kind) for name, kind in types.items()
        }
        frame.with_columns(**expressions).write_parquet(path.with_name(f"{table}.parquet"))
        path.unlink()

    return damage


def as_type(name: str, dtype: pl.DataType) -> pl.Expr:
    if isinstance(dtype, pl.Datetime):
        times = pl.col(name).str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit=dtype.time_unit)
        return times if dtype.time_zone is None else times.dt.replace_time_zone(dtype.time_zone)
    if dtype == pl.Date:
        return pl.col(name).str.slice(0, 10).str.to_date()
    return pl.col(name).cast(dtype)
