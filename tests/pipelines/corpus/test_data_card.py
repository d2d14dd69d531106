import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.corpus.data_card import histogram, share_warnings, tokenized_flow
from pipelines.engine.drop import drop_rows
from schemas.cards import Flow


@given(st.lists(st.integers(0, 5000), max_size=50))
def test_histogram_bins_do_not_overlap_or_leave_gaps(sizes):
    bins = histogram("size", pl.Series(sizes, dtype=pl.Int64))
    assert sum(bins.values()) == len(sizes)
    for label, count in bins.items():
        low, high = map(int, re.fullmatch(r"size\[(\d+),(\d+)\)", label).groups())
        assert count == sum(low <= size < high for size in sizes)


def test_drop_rows_counts_only_the_first_reason_that_holds():
    rows = pl.DataFrame({"a": [1, 1, None, 0], "b": [1, 0, 1, 0]})
    kept_rows, flow = drop_rows(rows, {"a": pl.col("a") == 1, "b": pl.col("b") == 1, "never": pl.lit(False)})
    assert flow == Flow(source_rows=4, kept_rows=1, dropped={"a": 2, "b": 1, "never": 0})
    assert flow.reconciles
    assert kept_rows.equals(rows[3:])


@given(st.lists(st.sampled_from("xyz")))
def test_drop_rows_flow_adds_up(values):
    rows = pl.DataFrame({"v": values}, schema={"v": pl.String})
    kept_rows, flow = drop_rows(rows, {"x": pl.col("v") == "x", "xy": pl.col("v").is_in(["x", "y"])})
    assert flow.reconciles
    assert kept_rows["v"].to_list() == [value for value in values if value == "z"]


def test_tokenized_flow_chains_source_rows_to_tokens():
    source_flow = Flow(
        source_rows=100, kept_rows=97, dropped={"no_time": 3}, noted={"NoDx": 4, "not_in_gem": 1}
    )
    flow = Flow(source_rows=97, kept_rows=90, dropped={"unmapped": 5, "no_stay": 2})
    whole = tokenized_flow(source_flow, flow)
    assert whole.dropped == {"no_time": 3, "NoDx": 4, "not_in_gem": 1, "no_stay": 2}
    assert (whole.source_rows, whole.kept_rows, whole.reconciles) == (100, 90, True)


def test_share_warnings_name_the_share_of_unmapped_drugs():
    flow = Flow(source_rows=300, kept_rows=60, dropped={"event_txt": 200, "no_atc": 40})
    assert share_warnings({"MED": flow}, {"unk": 0.0, "empty_sets": 0.0}) == [
        "MED: 40.0% of 100 rows dropped as no_atc (usual: below 10%)."
    ]


@pytest.mark.parametrize(
    ("num_dropped", "expected"), [(3, "< 11 of 20 rows"), (15, "> 9 of 20 rows"), (20, "100.0% of 20 rows")]
)
def test_share_warnings_hide_shares_that_disclose_small_counts(num_dropped, expected):
    flow = Flow(source_rows=20, kept_rows=20 - num_dropped, dropped={"no_atc": num_dropped})
    (sentence,) = share_warnings({"MED": flow}, {"unk": 0.0, "empty_sets": 0.0})
    assert sentence.startswith(f"MED: {expected} dropped as no_atc")


def test_share_warnings_are_empty_for_usual_shares():
    flow = Flow(source_rows=100, kept_rows=99, dropped={"no_atc": 1})
    assert share_warnings({"MED": flow}, {"unk": 0.05, "empty_sets": 0.0}) == []
