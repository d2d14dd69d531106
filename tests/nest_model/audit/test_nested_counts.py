"""A reader of an audit's page who knows which set of predictions lies within which, and subtracts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nest_model.audit.nested_counts import NestedCounts
from schemas.suppress import WITHHELD, disclosing
from tests.support.attacker import Attacker
from tests.support.examples import examples

LAST = 60
"""Sets of a page, at most: each lies within an earlier one, apart from its other parts."""


def rows(count: int, of: int, begin: int = 0) -> np.ndarray:
    place = np.arange(of)
    return (place >= begin) & (place < begin + count)


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(st.one_of(st.integers(0, 25), st.integers(0, 200)), min_size=1, max_size=7),
    st.lists(st.integers(0, LAST), min_size=7, max_size=7),
    st.randoms(use_true_random=False),
)
def test_no_difference_of_counts_narrows_a_small_one(sizes, parents, random):
    """The rest of each set is what lies in none of its parts; set 0 is that of all predictions."""
    parent = {k: parents[k - 1] % k for k in range(1, len(sizes))}
    rest = np.repeat(np.arange(len(sizes)), sizes)
    inside = {k: rest == k for k in range(len(sizes))}
    for k in sorted(parent, reverse=True):
        inside[parent[k]] = inside[parent[k]] | inside[k]
    counts, attacker = NestedCounts(np.arange(len(rest))), Attacker()
    attacker.see({"set 0": str(len(rest))})
    for k in random.sample(sorted(parent), len(parent)):
        attacker.see({f"set {k}": counts.text(inside[k])})
    for k in range(len(sizes)):
        parts = [f"set {part}" for part, whole in parent.items() if whole == k]
        attacker.know_sum(f"set {k}", [f"rest {k}", *parts])
    if len(rest) > 10:
        assert attacker.narrowed({f"rest {k}": size for k, size in enumerate(sizes)}) == {}


def test_a_set_within_another_is_withheld_where_few_patients_lie_between():
    counts = NestedCounts(np.arange(100))
    assert [counts.text(rows(count, 100)) for count in (50, 45, 39, 0)] == ["50", WITHHELD, "39", "0"]


def test_sets_that_exclude_one_another_leave_no_small_rest():
    counts = NestedCounts(np.arange(100))
    texts = [counts.text(rows(*place)) for place in ((60, 100), (35, 100, 60), (20, 100, 60))]
    assert texts == ["60", WITHHELD, "20"], "five are in neither of the first two"


def test_a_set_of_few_patients_is_withheld_however_many_predictions_they_have():
    counts = NestedCounts(np.arange(200) // 5)
    assert [counts.text(rows(count, 200)) for count in (5, 50, 110)] == ["< 11", WITHHELD, "110"]


def test_nearly_all_predictions_are_said_to_be_so():
    counts = NestedCounts(np.arange(100))
    assert [counts.text(rows(count, 100)) for count in (97, 60)] == ["> 89", "60"]


def test_counts_of_synthetic_patients_are_all_shown():
    counts = NestedCounts(np.arange(100))
    with disclosing(is_synthetic=True):
        assert [counts.text(rows(count, 100)) for count in (50, 45, 3)] == ["50", "45", "3"]


@pytest.mark.parametrize(
    ("left_out", "shown", "words"),
    [(0, "100", "all"), (3, "> 89", "nearly all"), (40, "60", "most"), (60, "40", "40")],
)
def test_a_total_that_is_not_shown_is_in_no_count_of_most(left_out, shown, words):
    is_inside = np.arange(100) >= left_out
    assert NestedCounts(np.arange(100)).text(is_inside) == shown
    assert NestedCounts(np.arange(100), is_total_shown=False).text(is_inside) == words
