import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.events.code_mapping import (
    code_events,
    gsn_number,
    shortest_target,
    to_icd10,
    to_plain_letters,
    zeros_lost,
)
from pipelines.sources.mimic.drug_lookup import count_prescriptions, fit_lookup


def target_of(targets: list[str]) -> str | None:
    crosswalk = pl.DataFrame({"icd_9": ["4.2"] * len(targets), "icd_10": targets})
    return shortest_target(crosswalk).row(0)[1]


@given(st.lists(st.text("AB01", min_size=3, max_size=5), min_size=1))
def test_shortest_target_wins_and_ties_go_by_the_alphabet(targets):
    assert target_of(targets) == min(targets, key=lambda target: (len(target), target))


def test_no_target_is_used_only_when_no_other_target_exists():
    assert target_of(["NoDx"]) is None
    assert target_of(["NoDx", "I2510"]) == "I2510"


def test_to_icd10_passes_version_ten_and_flags_codes_not_in_the_table():
    rows = pl.DataFrame({"code": ["I10", "0010", "77777", "4019"], "icd_version": [10, 9, 9, 9]})
    targets = pl.DataFrame({"code": ["0010", "4019"], "mapped": [None, "I10"]})
    mapped_rows = to_icd10(rows, targets)
    assert mapped_rows["mapped"].to_list() == ["I10", None, None, "I10"]
    assert mapped_rows["in_crosswalk"].to_list() == [True, True, False, True]


def lookup_of(rows: list[tuple[str | None, str | None]]) -> dict[str, tuple[str, int]]:
    table = pl.LazyFrame(rows, schema={"drug": pl.String, "gsn": pl.String}, orient="row")
    crosswalk = pl.LazyFrame({"gsn": ["1", "2", "2", "3"], "atc": ["B01", "A10", "A10", "C03"]})
    return {
        name: (atc, count)
        for name, atc, count in fit_lookup(count_prescriptions(table), crosswalk).collect().iter_rows()
    }


def test_drug_name_takes_the_atc_of_most_prescription_rows():
    assert lookup_of([("x", "1"), ("X ", "2"), (" x", "2")]) == {"x": ("A10", 2)}


def test_drug_lookup_breaks_ties_by_the_alphabet():
    assert lookup_of([("x", "1"), ("x", "2")]) == {"x": ("A10", 1)}


def test_row_with_several_gsn_counts_once_for_each_atc_code():
    assert lookup_of([("x", " 2  2 "), ("x", "2 3"), ("x", "3")]) == {"x": ("A10", 2)}


def test_drug_lookup_omits_names_without_a_known_gsn():
    assert lookup_of([("x", "99"), ("y", None), (None, "1"), ("  ", "1")]) == {}


def test_code_events_fills_names_and_keeps_existing_mappings():
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


def test_zeros_lost_counts_codes_known_only_with_zeros():
    codes = pl.Series(["04111", "4111", "07054", "25000", "486", "4019"])
    rows = pl.DataFrame({"code": ["7054", "7054", "2500", "4860", "999", "25"]})
    assert zeros_lost(rows, codes) == {"zeros_lost": 2, "last_zeros_lost": 2}
    assert zeros_lost(rows.clear(), codes) == {"zeros_lost": 0, "last_zeros_lost": 0}


def test_plain_converts_full_width_letters_but_no_look_alikes():
    codes = pl.Series(["\uff25\uff11\uff11\uff19", "I10\u200b", "\u0415119", None])
    assert to_plain_letters(codes).to_list() == ["E119", "I10", "\u0415119", None]


@pytest.mark.parametrize("spelling", ["001234", "1234", "1234.0", " 001234 "])
def test_gsn_number_has_six_digits(spelling: str):
    assert pl.select(gsn_number(pl.lit(spelling))).item() == "001234"
