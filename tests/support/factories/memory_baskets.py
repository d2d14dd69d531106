"""Baskets made in memory, for tests of systems that recommend next baskets."""

from collections.abc import Sequence

import numpy as np

from nest_model.data.seqsets import offsets_of
from nest_model.next_set.baskets import Baskets
from nest_model.next_set.questions import Histories, Known, Questions

FIRST_PRODUCT = 1_001


def baskets_of(users: Sequence[Sequence[Sequence[int]]], products: int) -> Baskets:
    """Return the baskets of users 1, 2, …; each basket is its items, places among products 1001, 1002, …."""
    filled = [basket for user in users for basket in user]
    return Baskets(
        subject_id=np.arange(1, len(users) + 1),
        basket_offsets=offsets_of(np.array([len(user) for user in users], dtype=np.int64)),
        item_offsets=offsets_of(np.array([len(basket) for basket in filled], dtype=np.int64)),
        items=np.array([item for basket in filled for item in basket], dtype=np.int32),
        cart_places=np.array([place for basket in filled for place in range(len(basket))], dtype=np.int16),
        days=np.array([7.0 * index for user in users for index in range(len(user))], dtype=np.float32),
        product_id=FIRST_PRODUCT + np.arange(products),
    )


def histories_of(baskets: Baskets) -> Histories:
    """Return histories whose next basket is asked for a week after the last."""
    last = np.maximum(baskets.lengths, 1) * 7.0
    return Histories(baskets, last.astype(np.float32))


def known_of(training: Baskets) -> Known:
    """Return what is known where there are no test users."""
    return Known(training, training.take(np.arange(0)))


def questions_of(baskets: Baskets) -> Questions:
    """Return the question for each user's last basket."""
    target = baskets.last(np.ones(len(baskets), dtype=np.int64))
    return Questions(
        histories_of(baskets.first(baskets.lengths - 1)),
        offsets_of(target.lines_of_user),
        target.product_id[target.items],
        {},
    )
