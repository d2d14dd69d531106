"""A shop in memory: each user's baskets of product ids, a week apart, for tests of systems that recommend."""

from pathlib import Path

import numpy as np
import torch
from lightning_fabric import Fabric

from nest_model.data.seqsets import offsets_of
from nest_model.next_set.baskets import Baskets, OrderRows
from nest_model.next_set.questions import Histories, Known, Questions
from nest_model.next_set.system import Tools
from nest_model.training.telemetry import NullTelemetry


def product_baskets(users: dict[int, list[list[int]]], products: list[int] | None = None) -> Baskets:
    """Return each user's baskets; the shop's products are those listed, or those bought."""
    orders = [
        (user, 7.0 * place, basket) for user in sorted(users) for place, basket in enumerate(users[user])
    ]
    lines = [product for *_, basket in orders for product in basket]
    rows = OrderRows(
        subject_id=np.array([user for user, *_ in orders], dtype=np.int64),
        encounter_id=np.arange(len(orders)),
        days=np.array([day for _, day, _ in orders], dtype=np.float32),
        flags=np.zeros(len(orders), dtype=np.int32),
        item_offsets=offsets_of(np.array([len(basket) for *_, basket in orders])),
        product_ids=np.array(lines, dtype=np.int64),
    )
    return rows.baskets(np.arange(len(orders)), np.unique(products if products is not None else lines))


def asked(users: dict[int, list[list[int]]], products: list[int]) -> Histories:
    """Return these users' histories; the next basket is expected a week after the last."""
    baskets = product_baskets(users, products)
    return Histories(baskets, (7.0 * baskets.lengths).astype(np.float32))


def questions(
    users: dict[int, list[list[int]]], truths: dict[int, list[int]], products: list[int]
) -> Questions:
    truth = [sorted(truths[user]) for user in sorted(users)]
    return Questions(
        asked(users, products),
        offsets_of(np.array([len(each) for each in truth])),
        np.array([product for each in truth for product in each], dtype=np.int64),
        {},
    )


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


def no_test_users(training: Baskets) -> Known:
    return Known(training, training.take(np.empty(0, dtype=np.int64)))


def cpu_tools(scratch: Path) -> Tools:
    """Return tools on one thread of the CPU."""
    torch.set_num_threads(1)
    return Tools(NullTelemetry(), lambda: Fabric(accelerator="cpu", devices=1), scratch)
