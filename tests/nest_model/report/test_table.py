"""How a score is written in the tables of pages and of the terminal."""

import pytest

from nest_model.report.table import interval


@pytest.mark.parametrize(
    ("score", "text"),
    [
        ({"value": 0.8124, "low": 0.78, "high": 0.845}, "0.812 (0.780 to 0.845)"),
        ({"value": 0.8124, "low": None, "high": None}, "0.812"),
        ({"value": 0.8124, "low": 0.78, "high": 0.845, "sd": 0.0041}, "0.812 ± 0.004 (0.780 to 0.845)"),
        ({"value": None, "low": None, "high": None}, "–"),
    ],
)
def test_a_score_has_three_decimals_its_spread_and_its_interval(score, text):
    assert interval(score) == text


def test_a_difference_has_its_sign_but_no_minus_before_zero():
    assert (
        interval({"value": -0.0001, "low": -0.03, "high": 0.02}, with_sign=True)
        == "+0.000 (−0.030 to +0.020)"
    )


@pytest.mark.parametrize(
    ("bound", "text"), [(-0.00005, "−0.000"), (0.00005, "+0.000"), (0.0, "0.000"), (-0.0, "0.000")]
)
def test_a_bound_that_rounds_to_zero_tells_on_which_side_of_zero_it_lies(bound, text):
    score = {"value": -0.003, "low": -0.006, "high": bound}
    assert interval(score, with_sign=True) == f"−0.003 (−0.006 to {text})"
