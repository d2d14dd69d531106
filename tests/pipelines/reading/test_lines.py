"""Counting rows by lines agrees with an RFC 4180 parser, and refuses tables whose quotes hide rows."""

import csv
import gzip
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.reading import lines
from pipelines.reading.lines import count_rows
from schemas.errors import InputError

CELLS = st.text(st.sampled_from("ab\",\n\r\\'7 \u2028"), max_size=6)


def write_table(folder: Path, body: bytes, *, is_compressed: bool = False) -> Path:
    path = folder / ("t.csv.gz" if is_compressed else "t.csv")
    path.write_bytes(gzip.compress(body) if is_compressed else body)
    return path


@given(st.lists(st.tuples(st.integers(0, 9), CELLS, CELLS), min_size=1, max_size=12), st.booleans())
def test_count_rows_of_a_well_quoted_table(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, str, str]], is_compressed: bool
):
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC)
    writer.writerows([("id", "a", "b"), *rows])
    path = write_table(
        tmp_path_factory.mktemp("lines"), text.getvalue().encode(), is_compressed=is_compressed
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "LINES_PER_BATCH", 3)
        assert count_rows(path) == len(rows)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (rb'1,"5\" x",3' + b"\n4,5,6\n" + rb'7,"8\" y",9' + b"\n", "2 of 4 lines .* not doubled"),
        (rb'1,"5\"",3' + b"\n4,5,6\n" + rb'7,"8\"",9' + b"\n", "not doubled"),
        (b'1,5"2,3\n', "not doubled"),
        (b'1,",3\n4,5,6\n7,",9\n', "whole rows stand in"),
        (b'1,",3\n7,",9\n', "whole rows stand in"),
        (b'1,"never,3\n4,5,6\n', "never closed"),
    ],
)
def test_count_rows_refuses_quotes_that_hide_rows(tmp_path: Path, body: bytes, says: str):
    with pytest.raises(InputError, match=says):
        count_rows(write_table(tmp_path, b"id,a,b\n" + body), ["id"])


def test_count_rows_counts_blank_lines_only_below_the_header(tmp_path: Path):
    assert count_rows(write_table(tmp_path, b'\n\r\n"id","a"\r\n1,"x\n\ny"\n\n2,z\n\n')) == 4
    assert count_rows(tmp_path / "t.csv", with_blank=False) == 2
