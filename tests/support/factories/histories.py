"""Baskets in memory, for tests of systems that recommend the next one."""

from collections.abc import Mapping, Sequence

import numpy as np

from nest_model.data.seqsets import offsets_of
from nest_model.next_set.baskets import Baskets
from nest_model.next_set.questions import Histories, Questions

DAYS_APART = 7


def baskets_of(
    shop: Mapping[int, Sequence[Sequence[int]]],
    *,
    days: Mapping[int, Sequence[float]] | None = None,
    product_id: Sequence[int] | None = None,
) -> Baskets:
    """Return each user's baskets of product ids, in the order they went into the cart; a week apart by default.

    Args:
        days: those of each user's baskets.
        product_id: all of the shop's products; default: those of these baskets.
    """
    users = sorted(shop)
    ids = np.unique(np.array(product_id or [i for user in users for basket in shop[user] for i in basket]))
    baskets = [list(basket) for user in users for basket in shop[user]]
    in_order = [np.argsort(basket, kind="stable") for basket in baskets]
    all_days = [
        day for user in users for day in (days or {}).get(user, range(0, 7 * len(shop[user]), DAYS_APART))
    ]
    return Baskets(
        subject_id=np.array(users, dtype=np.int64),
        basket_offsets=offsets_of(np.array([len(shop[user]) for user in users], dtype=np.int64)),
        item_offsets=offsets_of(np.array([len(basket) for basket in baskets], dtype=np.int64)),
        items=np.searchsorted(ids, np.concatenate([np.sort(basket) for basket in baskets])).astype(np.int32),
        cart_places=np.concatenate(in_order).astype(np.int16),
        days=np.array(all_days, dtype=np.float32),
        product_id=ids.astype(np.int64),
    )


def histories_of(baskets: Baskets, gap_days: float = DAYS_APART) -> Histories:
    """Return histories whose next basket is so many days after the last."""
    last = baskets.days[baskets.basket_offsets[1:] - 1]
    return Histories(baskets, (last + gap_days).astype(np.float32))


def questions_of(baskets: Baskets, truth: Mapping[int, Sequence[int]]) -> Questions:
    """Return the histories of these baskets and each user's next products."""
    targets = [sorted(truth[int(user)]) for user in baskets.subject_id]
    sizes = np.array([len(target) for target in targets], dtype=np.int64)
    return Questions(histories_of(baskets), offsets_of(sizes), np.concatenate(targets).astype(np.int64), {})


def random_shop(
    rng: np.random.Generator, users: int = 20, products: int = 15, longest: int = 8
) -> dict[int, list[list[int]]]:
    """Return users 1 … n, each with baskets of one to six products of 100, 101, …; some users have a single basket."""
    return {
        user: [
            list(100 + rng.choice(products, size=rng.integers(1, 7), replace=False))
            for _ in range(rng.integers(1, longest + 1))
        ]
        for user in range(1, users + 1)
    }
