import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.corpus.data_card import histogram, share_warnings, tokenized_flow
from pipelines.engine.drop import drop_rows
from schemas.cards import Flow


@given(st.lists(st.integers(0, 5000), max_size=50))
def test_every_size_lies_in_exactly_one_bin(sizes):
    binned = histogram("size", pl.Series(sizes, dtype=pl.Int64))
    assert sum(binned.values()) == len(sizes)
    for label, count in binned.items():
        low, high = map(int, re.fullmatch(r"size\[(\d+),(\d+)\)", label).groups())
        assert count == sum(low <= size < high for size in sizes)


def test_the_first_reason_that_holds_is_the_one_that_counts():
    rows = pl.DataFrame({"a": [1, 1, None, 0], "b": [1, 0, 1, 0]})
    kept, flow = drop_rows(rows, {"a": pl.col("a") == 1, "b": pl.col("b") == 1, "never": pl.lit(False)})
    assert flow == Flow(source_rows=4, kept_rows=1, dropped={"a": 2, "b": 1, "never": 0})
    assert flow.reconciles
    assert kept.equals(rows[3:])


@given(st.lists(st.sampled_from("xyz")))
def test_what_is_sifted_reconciles(values):
    rows = pl.DataFrame({"v": values}, schema={"v": pl.String})
    kept, flow = drop_rows(rows, {"x": pl.col("v") == "x", "xy": pl.col("v").is_in(["x", "y"])})
    assert flow.reconciles
    assert kept["v"].to_list() == [value for value in values if value == "z"]


def test_two_steps_make_one_flow_from_source_rows_to_tokens():
    extracted = Flow(
        source_rows=100, kept_rows=97, dropped={"no_time": 3}, noted={"NoDx": 4, "not_in_gem": 1}
    )
    written = Flow(source_rows=97, kept_rows=90, dropped={"unmapped": 5, "no_stay": 2})
    whole = tokenized_flow(extracted, written)
    assert whole.dropped == {"no_time": 3, "NoDx": 4, "not_in_gem": 1, "no_stay": 2}
    assert (whole.source_rows, whole.kept_rows, whole.reconciles) == (100, 90, True)


def test_forty_percent_of_unmapped_drugs_is_a_sentence_with_the_figure():
    flow = Flow(source_rows=300, kept_rows=60, dropped={"event_txt": 200, "no_atc": 40})
    assert share_warnings({"MED": flow}, {"unk": 0.0, "empty_sets": 0.0}) == [
        "MED: 40.0% of 100 rows dropped as no_atc (usual: below 10%)."
    ]


@pytest.mark.parametrize(
    ("dropped", "said"), [(3, "< 11 of 20 rows"), (15, "> 9 of 20 rows"), (20, "100.0% of 20 rows")]
)
def test_a_share_that_would_give_a_small_count_away_is_not_said(dropped, said):
    flow = Flow(source_rows=20, kept_rows=20 - dropped, dropped={"no_atc": dropped})
    (sentence,) = share_warnings({"MED": flow}, {"unk": 0.0, "empty_sets": 0.0})
    assert sentence.startswith(f"MED: {said} dropped as no_atc")


def test_usual_shares_are_not_spoken_of():
    flow = Flow(source_rows=100, kept_rows=99, dropped={"no_atc": 1})
    assert share_warnings({"MED": flow}, {"unk": 0.05, "empty_sets": 0.0}) == []
