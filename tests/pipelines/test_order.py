import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.order import order_of

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


@pytest.mark.parametrize("bits", [1, 20, 45, 60, 64])
def test_many_rows_are_put_in_numpys_own_order(bits: int):
    random = np.random.default_rng(bits)
    keys = [random.integers(0, 1 << bits, 70_000, dtype=np.uint64).astype(np.int64) for _ in range(3)]
    assert np.array_equal(order_of(keys), np.lexsort(keys[::-1]))
