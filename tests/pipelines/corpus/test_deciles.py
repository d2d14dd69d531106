from bisect import bisect_left
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.corpus.deciles import CUTS, deciles, fit_cuts
from tests.support.reference_etl import cuts_of

TENTHS = st.integers(-500, 500).map(lambda tenth: tenth / 10)
VALUES = st.lists(TENTHS | st.floats(-1e6, 1e6), min_size=1, max_size=80)


def labs(values: list[float], code: str = "1", unit: str | None = None) -> pl.DataFrame:
    return pl.DataFrame(
        {"code": [code] * len(values), "value": values, "unit": [unit] * len(values)},
        schema={"code": pl.String, "value": pl.Float64, "unit": pl.String},
    )


def fit(rows: pl.DataFrame, *, top: int) -> pl.DataFrame:
    values = rows.group_by("code", "value").agg(rows=pl.len().cast(pl.Int64))
    units = rows.group_by("code", "unit").agg(rows=pl.len().cast(pl.Int64))
    return fit_cuts(values, units, top=top)


def item_cuts(values: list[float]) -> list[float]:
    return list(fit(labs(values), top=1).select(CUTS).row(0))


def decile_of(values: list[float], cuts: list[float]) -> list[int]:
    table = pl.DataFrame([cuts], schema=CUTS, orient="row")
    return deciles(np.zeros(len(values), dtype=np.int64), np.array(values), table).tolist()


@given(VALUES)
def test_cuts_follow_the_rule_to_the_last_bit(values):
    assert item_cuts(values) == cuts_of(values)


@given(VALUES)
def test_cuts_are_the_linear_quantiles_in_exact_arithmetic(values):
    exact, n = sorted(map(Fraction, values)), len(values)
    for k, fitted_cut in enumerate(item_cuts(values), start=1):
        at, remainder = divmod(k * (n - 1), 10)
        above = exact[min(at + 1, n - 1)]
        quantile = exact[at] + (above - exact[at]) * remainder / 10
        assert fitted_cut == pytest.approx(float(quantile), rel=1e-12, abs=1e-9)


@given(VALUES, st.lists(TENTHS, min_size=1, max_size=30))
def test_decile_is_the_number_of_cuts_below_plus_1(values, rows):
    cuts = cuts_of(values)
    assert decile_of(rows, cuts) == [1 + bisect_left(cuts, value) for value in rows]


def test_value_on_a_cut_falls_in_the_lower_decile():
    assert decile_of([1.0, 1.5, 9.0, 9.5], [float(k) for k in range(1, 10)]) == [1, 2, 9, 10]


def test_equal_cuts_keep_their_rank():
    assert decile_of([1.0, 2.0, 3.0], [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]) == [1, 4, 10]


def test_deciles_use_the_cuts_of_the_same_item():
    table = pl.DataFrame([range(9), range(10, 19)], schema=CUTS, orient="row").cast(pl.Float64)
    assert deciles(np.array([1, 0, 1]), np.array([9.5, 9.5, 11.5]), table).tolist() == [1, 10, 3]


def test_fit_cuts_takes_the_most_frequent_items_and_breaks_ties_by_text():
    rows = pl.concat([labs([1.0] * 3, "9"), labs([1.0] * 2, "30"), labs([1.0] * 2, "4"), labs([1.0], "5")])
    assert fit(rows, top=2)["code"].to_list() == ["9", "30"]


def test_fit_cuts_takes_the_commonest_unit_or_null():
    rows = pl.concat(
        [labs([1.0] * 2, "1", "mg"), labs([1.0], "1", "g"), labs([1.0] * 5, "1"), labs([1.0], "2")]
    )
    assert dict(fit(rows, top=2).select("code", "unit").iter_rows()) == {"1": "mg", "2": None}
