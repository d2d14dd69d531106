"""p values by hand."""

import numpy as np
import pytest

from nest_model.evidence.statistics import bootstrap_p, holm, seeds_p


def test_bootstrap_p_is_that_of_a_normal_with_the_resamples_spread():
    differences = np.array([-1.0, 1.0]) + 1.96 * np.sqrt(2)  # a standard error of √2
    assert bootstrap_p(1.96 * np.sqrt(2), differences) == pytest.approx(0.05, abs=1e-4)
    assert bootstrap_p(0.0, differences) == 1.0


def test_bootstrap_p_ignores_undefined_resamples_and_knows_no_spread():
    assert bootstrap_p(0.5, np.array([np.nan, 0.4])) is None
    assert bootstrap_p(0.0, np.zeros(50)) == 1.0
    assert bootstrap_p(0.1, np.full(50, 0.1)) == 0.0


def test_a_clear_difference_stays_sure_among_a_hundred_questions():
    differences = np.random.default_rng(0).normal(0.2, 0.03, 1_000)
    p = bootstrap_p(0.2, differences)
    assert holm({number: p if number == 0 else 0.5 for number in range(100)})[0] < 0.05


def test_holm_multiplies_by_the_questions_left_and_never_falls():
    p_values = holm({"a": 0.01, "b": 0.04, "c": 0.03})
    assert p_values == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})
    assert holm({"a": 0.6, "b": 0.7}) == {"a": 1.0, "b": 1.0}


def test_p_over_seeds_is_that_of_the_paired_t_test():
    assert seeds_p([0.71, 0.72, 0.70], [0.70, 0.70, 0.69]) == pytest.approx(
        0.0572, abs=1e-4
    )  # t = 4, 2 degrees
    assert seeds_p([0.7], [0.6]) is None
    assert seeds_p([0.7, 0.7], [0.7, 0.7]) is None
