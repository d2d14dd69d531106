"""Tests that a table is read whole and in its order, whatever its cells hold."""

from pathlib import Path

import polars as pl
import pytest

from pipelines.reading import tables
from pipelines.reading.tables import INTEGER, NUMBER, TEXT, Table

ROWS = 100_000  # 15 MB: the scan cuts it into several pieces, which it reads side by side


@pytest.mark.parametrize(
    ("kind", "odd_text"),
    [(INTEGER, "7.0"), (INTEGER, "NULL"), (INTEGER, "7 "), (NUMBER, "NULL"), (NUMBER, "7 ")],
    ids=str,
)
@pytest.mark.parametrize("place", [0.3, 0.9])
def test_a_value_that_is_no_plain_number_loses_no_row_before_or_after_it(
    kind: pl.DataType, odd_text: str, place: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tables, "ROWS_PER_BATCH", 5_000)
    file, odd_row = tmp_path / "table.csv", int(place * ROWS)
    odd_value = {"NULL": None}.get(odd_text, 7)
    texts = [odd_text if row == odd_row else str(row) for row in range(ROWS)]
    pl.DataFrame({"row": range(ROWS), "number": texts, "text": ["x" * 140] * ROWS}).write_csv(file)
    table = Table({"row": INTEGER, "number": kind, "text": TEXT}, ("row",))
    rows = pl.concat(tables.batches(file, table))
    assert rows["row"].to_list() == list(range(ROWS))
    assert rows["number"].to_list() == [odd_value if row == odd_row else row for row in range(ROWS)]
