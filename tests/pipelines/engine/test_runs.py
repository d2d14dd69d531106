from itertools import groupby

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from pipelines.engine.runs import Runs, map_distinct

few = st.one_of(st.none(), st.integers(-1, 1))


@given(st.lists(st.tuples(few, few), max_size=30))
def test_a_run_is_rows_in_a_row_that_are_alike_in_all_columns(drawn):
    columns = list(pl.DataFrame(drawn, schema={"a": pl.Int64, "b": pl.Int64}, orient="row"))
    expected = [len(list(rows)) for _, rows in groupby(drawn)]
    runs = Runs(columns)
    assert len(runs) == len(expected)
    assert runs.sizes.tolist() == expected
    assert [drawn[head] for head in runs.heads] == [row for row, _ in groupby(drawn)]
    in_numpy = [column.fill_null(7).to_numpy() for column in columns]
    assert Runs(in_numpy).heads.tolist() == runs.heads.tolist()


@given(st.lists(few, max_size=30))
def test_what_is_found_for_a_run_s_head_goes_to_every_row_of_it(drawn):
    column = pl.Series("a", drawn, dtype=pl.Int64)
    runs = Runs([column])
    assert runs.spread(column[runs.heads]).to_list() == drawn
    numbers = column.fill_null(7).to_numpy()
    assert runs.spread(numbers[runs.heads]).tolist() == numbers.tolist()


@given(st.lists(st.one_of(st.none(), st.sampled_from(["", " A ", "a", "Ä"])), max_size=30))
def test_a_value_that_repeats_is_changed_once_and_none_is_left_out(drawn):
    asked: list[list[str | None]] = []

    def change(texts: pl.Series) -> pl.Series:
        asked.append(texts.to_list())
        return texts.str.strip_chars().str.to_uppercase()

    texts = pl.Series("text", drawn, dtype=pl.String)
    assert map_distinct(texts, change).to_list() == [text and text.strip().upper() for text in drawn]
    assert [sorted(filter(None, one)) for one in asked] == [sorted({text for text in drawn if text})]


def test_columns_in_pieces_are_looked_through_as_one():
    pieces = pl.concat([pl.Series("a", [1, 1]), pl.Series("a", [1, 2])], rechunk=False)
    assert pieces.n_chunks() == 2
    assert Runs([pieces]).heads.tolist() == [0, 3]
    assert map_distinct(pieces, lambda values: values.cast(pl.String)).to_list() == ["1", "1", "1", "2"]


def test_no_rows_are_no_runs():
    runs = Runs([np.empty(0, dtype=np.int64)])
    assert len(runs) == 0
    assert runs.spread(pl.Series([], dtype=pl.String)).to_list() == []
