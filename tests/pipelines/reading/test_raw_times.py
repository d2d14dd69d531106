"""Repeating times are parsed through a cache, with the same result as without."""

from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from pipelines.reading import parsing
from pipelines.reading import tables as raw
from pipelines.reading.tables import INTEGER, TIME, Table
from schemas.errors import InputError

TABLE = Table({"row": INTEGER, "time": TIME})
ZERO = datetime(2150, 1, 1, 23, 59, 59)


def write_table(path: Path, rows: list[tuple[int, str]]) -> Path:
    path.write_text("row,time\n" + "".join(f"{row},{time}\n" for row, time in rows))
    return path


def of_draws(odd: dict[int, str]) -> list[tuple[int, str]]:
    """Return 3,000 rows, thirty for each time, with the given texts for some rows."""
    return [(row, odd.get(row, f"{ZERO + timedelta(minutes=row // 30)}")) for row in range(3000)]


@pytest.fixture
def repeat_flags(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Record for each batch whether times were parsed as repeating."""
    usual, ways = parsing.parse_usual, list[bool]()

    def recording_parse(
        column: pl.Expr, source: pl.DataType, target: pl.DataType, *, repeats: bool
    ) -> pl.Expr:
        if target == TIME:
            ways.append(repeats)
        return usual(column, source, target, repeats=repeats)

    monkeypatch.setattr(parsing, "parse_usual", recording_parse)
    return ways


def test_repeating_times_parse_like_distinct_times(tmp_path: Path, repeat_flags: list[bool]) -> None:
    rows = of_draws({7: "", 8: "2150-01-02T03:04:05", 9: "2150-01-02 03:04", 10: "NaT"})
    sorted_times = raw.read(write_table(tmp_path / "together.csv", rows), TABLE)
    mixed_times = raw.read(
        write_table(tmp_path / "apart.csv", sorted(rows, key=lambda row: row[0] % 30)), TABLE
    )
    assert repeat_flags == [True, False]
    assert sorted_times.equals(mixed_times.sort("row"))
    assert sorted_times["time"][:12].to_list() == [
        *[ZERO] * 7,
        None,
        datetime(2150, 1, 2, 3, 4, 5),
        datetime(2150, 1, 2, 3, 4),
        None,
        ZERO,
    ]


def test_faults_among_repeating_times_are_counted(tmp_path: Path, repeat_flags: list[bool]) -> None:
    path = write_table(tmp_path / "faults.csv", of_draws({5: "01/02/2150", 6: "01/02/2150", 900: "noon"}))
    with pytest.raises(InputError, match=r"column time: 3 of 3,000 values are not a time"):
        raw.read(path, TABLE)
    assert repeat_flags == [True]
