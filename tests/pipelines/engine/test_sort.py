import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.engine import sort
from pipelines.engine.sort import order_of

LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
FEW = st.integers(-2, 2)
WIDE = st.integers(LEAST, MOST) | st.sampled_from([LEAST, -1, 0, MOST])
SECONDS = st.integers(-(10**10), 10**10).map(lambda second: second * 1_000_000)
ROWS = st.lists(st.tuples(FEW, FEW | WIDE, SECONDS, FEW | WIDE), max_size=40)


def keys_of(rows: list[tuple]) -> list[np.ndarray]:
    return [np.array([row[at] for row in rows], dtype=np.int64) for at in range(4)]


@given(ROWS)
def test_order_of_is_a_stable_lexicographic_sort(rows: list[tuple]):
    assert list(order_of(keys_of(rows))) == sorted(range(len(rows)), key=lambda at: rows[at])


NUMBERS = st.permutations(range(9)).map(lambda numbers: numbers[:7])
GROUPS = st.lists(st.tuples(FEW, FEW | WIDE, WIDE | st.just(0), NUMBERS), min_size=1, max_size=12)


@given(GROUPS, st.booleans())
def test_order_of_sorts_groups_of_close_numbers(groups: list[tuple], by_patient: bool):
    rows = [
        (first, second, base // 2 + (number if by_patient else at + len(groups) * number))
        for at, (first, second, base, numbers) in enumerate(groups)
        for number in numbers
    ]
    keys = [np.array([row[at] for row in rows], dtype=np.int64) for at in range(3)]
    assert list(order_of(keys)) == sorted(range(len(rows)), key=lambda at: rows[at])


# apart: every draw comes in two separate parts; together: the draws of a patient are adjacent
@pytest.mark.parametrize(("patients_together", "num_sorted"), [(False, 9_999), (True, 1_000)])
def test_order_of_places_lab_draws_without_comparing_numbers(
    patients_together: bool, num_sorted: int, monkeypatch
):
    random = np.random.default_rng(0)
    draws = np.arange(5_000).reshape(1_000, 5)
    numbers = draws.reshape(-1, 1) * 25 + np.argsort(random.random((5_000, 25)))[:, :20]
    came = random.permutation(draws).ravel() if patients_together else random.permutation(draws.ravel())
    parts = [(came, 0, 20)] if patients_together else [(came, 0, 10), (came[::-1], 10, 20)]
    draw = np.concatenate([np.repeat(of, end - start) for of, start, end in parts])
    number = np.concatenate([numbers[of, start:end].ravel() for of, start, end in parts])
    keys = [draw // 5, draw, number]
    sorted_rows = []
    by_row = sort._order_by_row
    monkeypatch.setattr(sort, "_order_by_row", lambda keys: sorted_rows.append(len(keys[0])) or by_row(keys))
    assert np.array_equal(order_of(keys), np.lexsort(keys[::-1]))
    assert sorted_rows == [num_sorted]


@pytest.mark.parametrize("bits", [1, 20, 45, 60, 64])
def test_order_of_agrees_with_numpy_on_many_rows(bits: int):
    random = np.random.default_rng(bits)
    keys = [random.integers(0, 1 << bits, 70_000, dtype=np.uint64).astype(np.int64) for _ in range(3)]
    assert np.array_equal(order_of(keys), np.lexsort(keys[::-1]))
