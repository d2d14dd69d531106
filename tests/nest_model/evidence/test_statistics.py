"""p values by hand."""

import numpy as np
import pytest

from nest_model.evidence.statistics import bootstrap_p, holm, seeds_p


def test_bootstrap_p_counts_the_rarer_side_twice_and_one_resample_more():
    differences = np.array([1.0] * 97 + [-1.0] * 2)
    assert bootstrap_p(differences) == pytest.approx(2 * 3 / 100)
    assert bootstrap_p(-differences) == pytest.approx(2 * 3 / 100)


def test_bootstrap_p_is_1_without_a_difference_and_ignores_undefined_resamples():
    assert bootstrap_p(np.zeros(50)) == 1.0
    assert bootstrap_p(np.array([np.nan, 1.0, 1.0, 1.0])) == pytest.approx(2 / 4)
    assert bootstrap_p(np.array([np.nan])) is None


def test_holm_multiplies_by_the_questions_left_and_never_falls():
    adjusted = holm({"a": 0.01, "b": 0.04, "c": 0.03})
    assert adjusted == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})
    assert holm({"a": 0.6, "b": 0.7}) == {"a": 1.0, "b": 1.0}


def test_p_over_seeds_is_that_of_the_paired_t_test():
    assert seeds_p([0.71, 0.72, 0.70], [0.70, 0.70, 0.69]) == pytest.approx(
        0.0572, abs=1e-4
    )  # t = 4, 2 degrees
    assert seeds_p([0.7], [0.6]) is None
    assert seeds_p([0.7, 0.7], [0.7, 0.7]) is None
