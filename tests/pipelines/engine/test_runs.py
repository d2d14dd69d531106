from itertools import groupby

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from pipelines.engine.runs import Runs, map_distinct

small = st.one_of(st.none(), st.integers(-1, 1))


@given(st.lists(st.tuples(small, small), max_size=30))
def test_runs_group_consecutive_rows_equal_in_all_columns(table):
    columns = list(pl.DataFrame(table, schema={"a": pl.Int64, "b": pl.Int64}, orient="row"))
    expected = [len(list(rows)) for _, rows in groupby(table)]
    runs = Runs(columns)
    assert len(runs) == len(expected)
    assert runs.sizes.tolist() == expected
    assert [table[head] for head in runs.heads] == [row for row, _ in groupby(table)]
    in_numpy = [column.fill_null(7).to_numpy() for column in columns]
    assert Runs(in_numpy).heads.tolist() == runs.heads.tolist()


@given(st.lists(small, max_size=30))
def test_spread_copies_the_head_value_to_every_row_of_a_run(rows):
    column = pl.Series("a", rows, dtype=pl.Int64)
    runs = Runs([column])
    assert runs.spread(column[runs.heads]).to_list() == rows
    numbers = column.fill_null(7).to_numpy()
    assert runs.spread(numbers[runs.heads]).tolist() == numbers.tolist()


@given(st.lists(st.one_of(st.none(), st.sampled_from(["", " A ", "a", "Ä"])), max_size=30))
def test_map_distinct_changes_each_distinct_value_exactly_once(values):
    calls: list[list[str | None]] = []

    def change(texts: pl.Series) -> pl.Series:
        calls.append(texts.to_list())
        return texts.str.strip_chars().str.to_uppercase()

    texts = pl.Series("text", values, dtype=pl.String)
    assert map_distinct(texts, change).to_list() == [text and text.strip().upper() for text in values]
    assert [sorted(filter(None, call)) for call in calls] == [sorted({text for text in values if text})]


def test_runs_and_map_distinct_accept_chunked_columns():
    pieces = pl.concat([pl.Series("a", [1, 1]), pl.Series("a", [1, 2])], rechunk=False)
    assert pieces.n_chunks() == 2
    assert Runs([pieces]).heads.tolist() == [0, 3]
    assert map_distinct(pieces, lambda values: values.cast(pl.String)).to_list() == ["1", "1", "1", "2"]


def test_runs_of_an_empty_table_are_empty():
    runs = Runs([np.empty(0, dtype=np.int64)])
    assert len(runs) == 0
    assert runs.spread(pl.Series([], dtype=pl.String)).to_list() == []
