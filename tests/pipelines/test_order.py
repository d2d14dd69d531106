import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.order import order_of, order_of_runs, pack

LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
FEW = st.integers(-2, 2)
WIDE = st.integers(LEAST, MOST) | st.sampled_from([LEAST, -1, 0, MOST])
SECONDS = st.integers(-(10**10), 10**10).map(lambda second: second * 1_000_000)
ROWS = st.lists(st.tuples(FEW, FEW | WIDE, SECONDS, FEW | WIDE), max_size=40)


def keys_of(rows: list[tuple]) -> list[np.ndarray]:
    return [np.array([row[at] for row in rows], dtype=np.int64) for at in range(4)]


@given(ROWS)
def test_the_order_is_that_of_comparing_key_by_key(rows: list[tuple]):
    order = order_of(keys_of(rows))
    assert sorted(order) == list(range(len(rows)))
    assert [rows[at] for at in order] == sorted(rows)


@given(ROWS)
def test_equal_rows_of_runs_stay_as_they_came(rows: list[tuple]):
    assert list(order_of_runs(keys_of(rows))) == sorted(range(len(rows)), key=lambda at: rows[at])


SECONDS_OF_TWO_CENTURIES = [0, 1_000_000, 200 * 365 * 86_400_000_000]


@pytest.mark.parametrize(
    ("keys", "left"),
    [
        ([[0, 1, 4000], SECONDS_OF_TWO_CENTURIES, [0, 1, 2**18]], 0),
        ([[0, 1, 4000], SECONDS_OF_TWO_CENTURIES, [0, 1, 2**28]], 1),
        ([[0, 1, 4000], [0, 1, 200 * 365 * 86_400_000_000], [0, 1, 2]], 2),
        ([[LEAST, LEAST + 1, MOST], [5, 5, 5]], 0),
        ([[LEAST, LEAST + 1, MOST], [0, 1, 1]], 1),
    ],
    ids=["seconds", "a number for each of millions", "microseconds", "a constant takes nothing", "64 bits"],
)
def test_as_many_keys_are_packed_as_fit(keys: list[list[int]], left: int):
    packed, rest = pack([np.array(key, dtype=np.int64) for key in keys])
    assert packed.dtype == np.uint64
    assert len(rest) == left
