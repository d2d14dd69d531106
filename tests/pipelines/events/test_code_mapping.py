import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.events.code_mapping import (
    code_events,
    gsn_number,
    plain,
    shortest_target,
    to_icd10,
    zeros_lost,
)
from pipelines.sources.mimic.drug_lookup import count_prescriptions, fit_lookup


def chosen(targets: list[str]) -> str | None:
    crosswalk = pl.DataFrame({"icd_9": ["4.2"] * len(targets), "icd_10": targets})
    return shortest_target(crosswalk).row(0)[1]


@given(st.lists(st.text("AB01", min_size=3, max_size=5), min_size=1))
def test_of_several_targets_the_shortest_wins_and_ties_go_by_the_alphabet(targets):
    assert chosen(targets) == min(targets, key=lambda target: (len(target), target))


def test_no_target_is_chosen_only_where_there_is_no_other():
    assert chosen(["NoDx"]) is None
    assert chosen(["NoDx", "I2510"]) == "I2510"


def test_version_ten_passes_unchanged_and_what_the_table_lacks_is_told_apart():
    rows = pl.DataFrame({"code": ["I10", "0010", "77777", "4019"], "icd_version": [10, 9, 9, 9]})
    targets = pl.DataFrame({"code": ["0010", "4019"], "mapped": [None, "I10"]})
    coded = to_icd10(rows, targets)
    assert coded["mapped"].to_list() == ["I10", None, None, "I10"]
    assert coded["in_crosswalk"].to_list() == [True, True, False, True]


def looked_up(rows: list[tuple[str | None, str | None]]) -> dict[str, tuple[str, int]]:
    table = pl.LazyFrame(rows, schema={"drug": pl.String, "gsn": pl.String}, orient="row")
    crosswalk = pl.LazyFrame({"gsn": ["1", "2", "2", "3"], "atc": ["B01", "A10", "A10", "C03"]})
    return {
        name: (atc, count)
        for name, atc, count in fit_lookup(count_prescriptions(table), crosswalk).collect().iter_rows()
    }


def test_a_name_takes_the_atc_of_most_prescription_rows():
    assert looked_up([("x", "1"), ("X ", "2"), (" x", "2")]) == {"x": ("A10", 2)}


def test_a_tie_between_codes_goes_by_the_alphabet():
    assert looked_up([("x", "1"), ("x", "2")]) == {"x": ("A10", 1)}


def test_several_gsn_in_one_row_count_the_row_once_for_each_code():
    assert looked_up([("x", " 2  2 "), ("x", "2 3"), ("x", "3")]) == {"x": ("A10", 2)}


def test_a_name_without_a_known_gsn_is_not_in_the_lookup():
    assert looked_up([("x", "99"), ("y", None), (None, "1"), ("  ", "1")]) == {}


def test_the_lookup_fills_names_and_leaves_what_is_mapped():
    events = pl.LazyFrame(
        {
            "vocab": ["name", "name", "name", "icd9cm"],
            "code": ["x", "x", "y", "x"],
            "mapped": [None, "C03", None, None],
        },
        schema_overrides={"mapped": pl.String},
    )
    lookup = pl.LazyFrame({"name": ["x"], "atc": ["A10"], "rows": [1]})
    assert code_events(events, lookup).collect()["mapped"].to_list() == ["A10", "C03", None, None]


def test_codes_that_are_known_only_with_zeros_tell_that_zeros_were_lost():
    known = pl.Series(["04111", "4111", "07054", "25000", "486", "4019"])
    rows = pl.DataFrame({"code": ["7054", "7054", "2500", "4860", "999", "25"]})
    assert zeros_lost(rows, known) == {"zeros_lost": 2, "last_zeros_lost": 2}
    assert zeros_lost(rows.clear(), known) == {"zeros_lost": 0, "last_zeros_lost": 0}


def test_plain_letters_are_made_of_full_width_ones_and_of_no_look_alikes():
    codes = pl.Series(["\uff25\uff11\uff11\uff19", "I10\u200b", "\u0415119", None])
    assert plain(codes).to_list() == ["E119", "I10", "\u0415119", None]


@pytest.mark.parametrize("spelling", ["001234", "1234", "1234.0", " 001234 "])
def test_a_gsn_is_a_number_of_six_digits(spelling: str):
    assert pl.select(gsn_number(pl.lit(spelling))).item() == "001234"
