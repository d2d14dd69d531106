"""Ways to spoil a table: by its bytes, its text, its cells or its rows, or by writing it as Parquet.

Each returns a damage, a function of the input's folder; a damage is done to files alone and knows no reader.
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


def packed(table: str, change: Callable[[bytes], bytes]) -> Damage:
    """Change the bytes of the .csv.gz itself."""

    def damage(raw: Path) -> None:
        path = file_of(raw, table)
        path.write_bytes(change(path.read_bytes()))

    return damage


def body(table: str, change: Callable[[bytes], bytes]) -> Damage:
    """Change the bytes of the text inside."""

    def damage(raw: Path) -> None:
        file_of(raw, table).write_bytes(gzip.compress(change(body_of(raw, table)), 1))

    return damage


def unpacked(table: str, change: Callable[[bytes], bytes] = bytes) -> Damage:
    """Write the table as plain .csv, its bytes changed, instead of .csv.gz."""

    def damage(raw: Path) -> None:
        path = file_of(raw, table)
        path.with_suffix("").write_bytes(change(body_of(raw, table)))
        path.unlink()

    return damage


def flip(place: float, bit: int = 4) -> Callable[[bytes], bytes]:
    """Flip one bit: at a share of the length (below 1), or so many bytes before the end (negative)."""

    def change(data: bytes) -> bytes:
        at = len(data) + int(place) if place < 0 else int(place * len(data))
        return data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]

    return change


def lines(table: str, change: Callable[[list[bytes]], list[bytes]]) -> Damage:
    """Change the physical lines, each with its end; the first is the header."""
    return body(table, lambda data: b"".join(change(data.splitlines(keepends=True))))


def line_of(found: list[bytes], holds: Callable[[list[bytes]], bool]) -> int:
    """Return the place of the first line, past the middle, that is a whole unquoted row for which `holds`."""
    width = found[0].count(b",")
    for place in range(len(found) // 2, len(found)):
        line = found[place]
        if line.count(b",") == width and b'"' not in line and holds(line.rstrip(b"\r\n").split(b",")):
            return place
    raise LookupError("no such line")


def file_system(change: Callable[[Path], None], table: str) -> Damage:
    """Do something to the file as such: replace it by a folder, a link, a pipe."""
    return lambda raw: change(file_of(raw, table))


# --- cells and rows -----------------------------------------------------------------------------------------------


def cells(
    table: str, column: str, change: str | Callable[[str], str], count: int | None = None, empty: bool = False
) -> Damage:
    """Change the first `count` cells (None: all) of a column that hold something (`empty`: that hold nothing)."""

    def damage(raw: Path) -> None:
        rows = rows_of(raw, table)
        chosen = [row for row in rows if (row[column] == "") is empty][:count]
        assert count is None or len(chosen) == count
        for row in chosen:
            row[column] = change if isinstance(change, str) else change(row[column])
        write_rows(raw, table, rows[0], rows)

    return damage


def rows(table: str, change: Callable[[list[Row]], list[Row]]) -> Damage:
    """Change the list of rows."""

    def damage(raw: Path) -> None:
        found = rows_of(raw, table)
        write_rows(raw, table, list(found[0]), change(found))

    return damage


def columns(
    table: str, change: Callable[[list[str]], list[str]], named: Callable[[str], str] = str
) -> Damage:
    """Choose the columns written and their order (what is not there stays empty), then how each is named."""

    def damage(raw: Path) -> None:
        found = rows_of(raw, table)
        chosen = change(list(found[0]))
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow(map(named, chosen))
        writer.writerows([row.get(name, "") for name in chosen] for row in found)
        file_of(raw, table).write_bytes(gzip.compress(text.getvalue().encode(), 1))

    return damage


def added(
    table: str, like: Callable[[Row], bool], count: int = 1, key: str | None = None, **values: str
) -> Damage:
    """Append `count` copies of the first row for which `like` holds, with other values and each its own `key`."""

    def change(found: list[Row]) -> list[Row]:
        first = next(row for row in found if like(row))
        keys = [{} if key is None else {key: str(900_000 + number)} for number in range(count)]
        return [*found, *({**first, **values, **own} for own in keys)]

    return rows(table, change)


def repeated(table: str, like: Callable[[Row], bool], count: int, **values: str) -> Damage:
    """Append the first `count` rows for which `like` holds once more, with other values."""

    def change(found: list[Row]) -> list[Row]:
        chosen = [row for row in found if like(row)][:count]
        assert len(chosen) == count
        return [*found, *({**row, **values} for row in chosen)]

    return rows(table, change)


def both(*damages: Damage) -> Damage:
    def damage(raw: Path) -> None:
        for one in damages:
            one(raw)

    return damage


def nothing(raw: Path) -> None:
    """Leave the input as it is."""


# --- Parquet ------------------------------------------------------------------------------------------------------


def parquet(table: str, **types: pl.DataType | pl.Expr) -> Damage:
    """Write the table as Parquet: the columns named are cast from text or computed, the others left; empty is null."""

    def damage(raw: Path) -> None:
        path = file_of(raw, table)
        frame = pl.read_csv(io.BytesIO(body_of(raw, table)), infer_schema=False)
        typed = {
            name: kind if isinstance(kind, pl.Expr) else as_type(name, kind) for name, kind in types.items()
        }
        frame.with_columns(**typed).write_parquet(path.with_name(f"{table}.parquet"))
        path.unlink()

    return damage


def as_type(name: str, dtype: pl.DataType) -> pl.Expr:
    if isinstance(dtype, pl.Datetime):
        parsed = pl.col(name).str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit=dtype.time_unit)
        return parsed if dtype.time_zone is None else parsed.dt.replace_time_zone(dtype.time_zone)
    if dtype == pl.Date:
        return pl.col(name).str.slice(0, 10).str.to_date()
    return pl.col(name).cast(dtype)
