"""The rows of ReCANet are those a plain loop makes, and see nothing from the label basket on."""

import numpy as np
import pytest

from nest_model.next_set.baskets import Baskets
from nest_model.next_set.labels import label_blocks
from nest_model.next_set.recanet_rows import (
    RepurchaseBatch,
    RepurchaseRows,
    join_users,
    question_rows,
    training_rows,
)
from tests.support.factories.histories import baskets_of, random_users

MOST_GAPS = 4


def everything(baskets: Baskets) -> np.ndarray:
    return np.ones(baskets.products, dtype=bool)


def gaps_of(batch: RepurchaseBatch) -> list[tuple[int, ...]]:
    starts = np.concatenate([[0], np.cumsum(batch.row_counts)])
    return [
        tuple(int(batch.gaps[starts[t] + row]) for t, rows in enumerate(batch.row_counts) if row < rows)
        for row in range(len(batch.item))
    ]


def contents(rows: RepurchaseRows, baskets: Baskets, most_gaps: int = MOST_GAPS) -> set[tuple]:
    """Return (user, label position, product, gaps, is bought) of each row."""
    batch = rows.batch(np.arange(len(rows)), most_gaps)
    users = baskets.subject_id[rows.label_user[batch.label]]
    positions = rows.label_position[batch.label]
    products = baskets.product_id[batch.item]
    row_contents = list(zip(users, positions, products, gaps_of(batch), batch.is_bought, strict=True))
    assert len(set(row_contents)) == len(rows)
    return set(row_contents)


def rows_by_loop(users: dict[int, list[list[int]]], label_positions: int, candidates: set[int]) -> set[tuple]:
    rows = set()
    for user, baskets in users.items():
        for label in range(max(1, len(baskets) - label_positions), len(baskets)):
            for product in set().union(*baskets[:label]) & candidates:
                places = [place for place in range(label) if product in baskets[place]]
                gaps = tuple(np.diff([*places, label])[-MOST_GAPS:])
                rows.add((user, label, product, gaps, product in baskets[label]))
    return rows


@pytest.mark.parametrize("label_positions", [1, 3, 50])
def test_rows_are_those_of_a_loop(label_positions):
    users = random_users(30, 12)
    baskets = baskets_of(users)
    is_candidate = baskets.product_id % 4 != 0
    rows = training_rows(baskets, is_candidate, label_positions)
    assert contents(rows, baskets) == rows_by_loop(
        users, label_positions, {*baskets.product_id[is_candidate]}
    )


def test_gaps_of_purchases_in_2_and_5_before_7():
    product = 9
    baskets = baskets_of({1: [[1], [1], [1, product], [1], [1], [1, product], [1], [1]]})
    rows = training_rows(baskets, baskets.product_id == product, 1)
    assert contents(rows, baskets) == {(1, 7, product, (3, 2), False)}


def test_question_rows_wait_for_the_basket_after_all():
    baskets = baskets_of({1: [[5], [6], [5]], 2: [[6]]})
    assert contents(question_rows(baskets, everything(baskets)), baskets) == {
        (1, 3, 5, (2, 1), False),
        (1, 3, 6, (2,), False),
        (2, 1, 6, (1,), False),
    }


def test_rows_of_a_label_ignore_what_comes_later():
    users = random_users(20, 12)
    other_labels = {user: [*baskets[:-1], [12]] for user, baskets in users.items()}
    before, after = (
        {row[:4] for row in contents(training_rows(baskets, everything(baskets), 50), baskets)}
        for baskets in (baskets_of(each, list(range(1, 13))) for each in (users, other_labels))
    )
    assert before == after
    assert before


@pytest.mark.parametrize("length", [255, 256, 300])
def test_long_histories_keep_their_gaps(length):
    baskets = baskets_of({1: [[1, 2] if place in (0, length - 2) else [1] for place in range(length)]})
    rows = question_rows(baskets, baskets.product_id == 2)
    assert contents(rows, baskets) == {(1, length, 2, (length - 2, 2), False)}
    assert rows.purchases.positions.itemsize == (1 if length < 256 else 2)
    of_all = question_rows(baskets, everything(baskets))
    assert len(of_all.batch(np.arange(2), length).row_counts) == length


def test_an_index_row_takes_nine_bytes():
    rows = training_rows(baskets_of(random_users(5, 12)), np.ones(12, dtype=bool), 5)
    assert rows.pair.itemsize + rows.label.itemsize + rows.count.itemsize == 9


def test_more_gaps_than_a_byte_holds_are_all_gaps():
    baskets = baskets_of({1: [[1]] * 12})
    rows = training_rows(baskets, everything(baskets), 1)
    assert rows.count.dtype == np.uint8
    np.testing.assert_array_equal(rows.batch(np.array([0]), 300).gaps, np.ones(11))


def test_users_with_one_basket_have_no_rows():
    baskets = baskets_of({1: [[1, 2]], 2: [[2]]})
    assert len(training_rows(baskets, everything(baskets), 5)) == 0


def test_labels_are_in_the_order_of_their_blocks():
    baskets = baskets_of(random_users(10, 12))
    rows = training_rows(baskets, everything(baskets), 3)
    blocks = list(label_blocks(baskets, 3))
    np.testing.assert_array_equal(rows.label_user, np.concatenate([users for users, _ in blocks]))
    np.testing.assert_array_equal(rows.label_position, np.concatenate([places for _, places in blocks]))


def test_joined_users_keep_the_first_of_their_baskets():
    parts = [baskets_of(each, [1, 2, 3]) for each in ({1: [[1]], 3: [[3], [1]]}, {2: [[2]], 3: [[2]]})]
    all_users = join_users(parts)
    assert all_users.subject_id.tolist() == [1, 2, 3]
    assert all_users.lengths.tolist() == [1, 1, 2]
    assert all_users.product_id[all_users.items].tolist() == [1, 2, 3, 1]
