"""Baskets in memory, for tests of systems that recommend the next one."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric

from nest_model.data.seqsets import offsets_of
from nest_model.next_set.baskets import Baskets
from nest_model.next_set.questions import Histories, LearningData, Questions
from nest_model.next_set.system import Tools
from nest_model.training.telemetry import NullTelemetry

DAYS_APART = 7
FIRST_PRODUCT = 1_001


def baskets_of(
    shop: Mapping[int, Sequence[Sequence[int]]],
    product_id: Sequence[int] | None = None,
    *,
    days: Mapping[int, Sequence[float]] | None = None,
) -> Baskets:
    """Return each user's baskets of product ids, in the order they went into the cart; a week apart by default.

    Args:
        product_id: all of the shop's products; default: those of these baskets.
        days: those of each user's baskets.
    """
    users = sorted(shop)
    ids = np.unique(
        np.array(list(product_id or ()) or [i for user in users for basket in shop[user] for i in basket])
    )
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


def histories_of_users(users: Mapping[int, Sequence[Sequence[int]]], product_id: Sequence[int]) -> Histories:
    """Return these users' histories; the next basket is expected a week after the last."""
    return histories_of(baskets_of(users, product_id))


def questions_of_users(
    users: Mapping[int, Sequence[Sequence[int]]],
    truth: Mapping[int, Sequence[int]],
    product_id: Sequence[int],
) -> Questions:
    """Return these users' histories and their next products."""
    return questions_of(baskets_of(users, product_id), truth)


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


def random_users(users: int, products: int, *, seed: int = 0, first: int = 1) -> dict[int, list[list[int]]]:
    """Return users with 1 to 9 baskets, who mostly buy a few products of their own, one of them in every basket."""
    draw = np.random.default_rng(seed)
    shop = {}
    for user in range(first, first + users):
        favourites = draw.choice(products, 5, replace=False) + 1
        shop[user] = [
            sorted(
                {int(favourites[0]), *map(int, draw.choice(favourites, 2)), int(draw.integers(products)) + 1}
            )
            for _ in range(int(draw.integers(1, 10)))
        ]
    return shop


def no_test_users(training: Baskets, **fields: Any) -> LearningData:
    """Return data to learn from where there are no test users."""
    return LearningData(training, training.take(np.empty(0, dtype=np.int64)), **fields)


def cpu_tools(scratch: Path) -> Tools:
    """Return tools on one thread of the CPU."""
    torch.set_num_threads(1)
    return Tools(NullTelemetry(), lambda: Fabric(accelerator="cpu", devices=1), scratch)


def indexed_baskets(users: Sequence[Sequence[Sequence[int]]], products: int) -> Baskets:
    """Return the baskets of users 1, 2, …; each basket is its items, places among products 1001, 1002, …."""
    ids = [FIRST_PRODUCT + place for place in range(products)]
    shop = {
        user: [[ids[item] for item in basket] for basket in baskets]
        for user, baskets in enumerate(users, start=1)
    }
    return baskets_of(shop, product_id=ids)


def last_basket_questions(baskets: Baskets) -> Questions:
    """Return the question for each user's last basket."""
    target = baskets.last(np.ones(len(baskets), dtype=np.int64))
    return Questions(
        histories_of(baskets.first(baskets.lengths - 1)),
        offsets_of(target.lines_of_user),
        target.product_id[target.items],
        {},
    )
