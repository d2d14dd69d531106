import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines import order
from pipelines.order import all_differ, order_of

LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
FEW = st.integers(-2, 2)
WIDE = st.integers(LEAST, MOST) | st.sampled_from([LEAST, -1, 0, MOST])
SECONDS = st.integers(-(10**10), 10**10).map(lambda second: second * 1_000_000)
ROWS = st.lists(st.tuples(FEW, FEW | WIDE, SECONDS, FEW | WIDE), max_size=40)


def keys_of(rows: list[tuple]) -> list[np.ndarray]:
    return [np.array([row[at] for row in rows], dtype=np.int64) for at in range(4)]


@given(ROWS)
def test_the_order_is_that_of_comparing_key_by_key_and_equal_rows_stay_as_they_came(rows: list[tuple]):
    assert list(order_of(keys_of(rows))) == sorted(range(len(rows)), key=lambda at: rows[at])


NUMBERS = st.permutations(range(9)).map(lambda numbers: numbers[:7])
GROUPS = st.lists(st.tuples(FEW, FEW | WIDE, WIDE | st.just(0), NUMBERS), min_size=1, max_size=12)


@given(GROUPS, st.booleans())
def test_groups_of_close_numbers_are_put_in_order_like_any_rows(groups: list[tuple], apart: bool):
    rows = [
        (first, second, base // 2 + number)
        for at, (first, second, base, numbers) in enumerate(groups)
        for number in (numbers if not apart else [10 * at + number for number in numbers])
    ]
    keys = [np.array([row[at] for row in rows], dtype=np.int64) for at in range(3)]
    assert list(order_of(keys)) == sorted(range(len(rows)), key=lambda at: rows[at])


def test_a_draw_s_results_are_put_in_order_without_comparing_their_numbers(monkeypatch):
    random = np.random.default_rng(0)
    draw = np.repeat(random.permutation(5_000), 20)
    number = draw * 25 + np.concatenate([random.permutation(25)[:20] for _ in range(5_000)])
    sorted_rows = []
    by_row = order._order_by_row
    monkeypatch.setattr(order, "_order_by_row", lambda keys: sorted_rows.append(len(keys[0])) or by_row(keys))
    keys = [draw // 7, draw, number]
    assert np.array_equal(order_of(keys), np.lexsort(keys[::-1]))
    assert sorted_rows == [5_000]


@given(st.lists(FEW | WIDE, max_size=20))
def test_numbers_are_said_to_differ_only_if_they_do(numbers: list[int]):
    found = all_differ(np.array(numbers, dtype=np.int64))
    assert not (found and len(set(numbers)) < len(numbers))
    if numbers and max(numbers) - min(numbers) < len(numbers):
        assert found == (len(set(numbers)) == len(numbers))


@pytest.mark.parametrize("bits", [1, 20, 45, 60, 64])
def test_many_rows_are_put_in_numpys_own_order(bits: int):
    random = np.random.default_rng(bits)
    keys = [random.integers(0, 1 << bits, 70_000, dtype=np.uint64).astype(np.int64) for _ in range(3)]
    assert np.array_equal(order_of(keys), np.lexsort(keys[::-1]))
