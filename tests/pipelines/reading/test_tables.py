"""Tests that a table is read whole and in its order, whatever its cells hold."""

from pathlib import Path

import polars as pl
import pytest

from pipelines.reading import tables
from pipelines.reading.tables import INTEGER, TEXT, Table

ROWS = 100_000  # 15 MB: the scan cuts it into several pieces, which it reads side by side


@pytest.mark.parametrize("place", [0.3, 0.5, 0.9])
def test_a_whole_number_with_a_decimal_point_loses_no_row_before_or_after_it(
    place: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tables, "ROWS_PER_BATCH", 5_000)
    file = tmp_path / "table.csv"
    numbers = [f"{number}.0" if number == int(place * ROWS) else str(number) for number in range(ROWS)]
    pl.DataFrame({"row": range(ROWS), "number": numbers, "text": ["x" * 140] * ROWS}).write_csv(file)
    table = Table({"row": INTEGER, "number": INTEGER, "text": TEXT}, ("row",))
    rows = pl.concat(tables.batches(file, table))
    assert rows["row"].to_list() == list(range(ROWS))
    assert rows["number"].to_list() == list(range(ROWS))
