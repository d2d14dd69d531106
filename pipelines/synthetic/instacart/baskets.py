"""Draws what a block of users buys: staples in most orders, habits every few orders (both drift), and new items."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipelines.synthetic.instacart.catalog import TASTES, ProductCatalog
from pipelines.synthetic.instacart.people import UserOrders

FIRST_FAVOURITES, FAVOURITES_PER_ORDER = 14, 1.25
STAPLE_SHARE = 0.35  # of the favourites; the others are habits
MEAN_LIFE_ORDERS = 18.0  # lifetime of a favourite before another replaces it
HABIT_PERIODS = (2, 6)  # in orders, upper bound excluded
HABIT_KEPT = 0.8
MEAN_NEW_ITEMS = 3.3
LARGEST_BASKET = 145


@dataclass(frozen=True)
class OrderLines:
    """Order lines by (order, product_id): `order` is the order's place in its block."""

    order: NDArray[np.int64]
    product_id: NDArray[np.int64]
    add_to_cart_order: NDArray[np.int64]
    is_reorder: NDArray[np.bool_]


def draw_lines(orders: UserOrders, catalog: ProductCatalog, rng: np.random.Generator) -> OrderLines:
    """Return the lines of every order of the block; each product once per order, no order empty."""
    taste = rng.integers(0, TASTES, orders.users)
    usual = _favourites(orders, taste, catalog, rng)
    new = _new_items(orders, taste, catalog, rng)
    width = catalog.products + 1
    keys = np.unique(np.concatenate([usual, new]))
    order, product = keys // width, keys % width
    is_reorder = _is_reorder(orders.user[order], product, width)
    return _number_carts(order, product, is_reorder, rng)


def _favourites(
    orders: UserOrders, taste: NDArray[np.int64], catalog: ProductCatalog, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return order · (products + 1) + product for every favourite that is bought."""
    counts = FIRST_FAVOURITES + rng.poisson(FAVOURITES_PER_ORDER * orders.per_user * orders.appetite)
    user = np.repeat(np.arange(orders.users), counts)
    place = np.arange(len(user)) - np.repeat(np.cumsum(counts) - counts, counts)
    product = catalog.draw(taste[user], rng)
    first_order = np.where(place < FIRST_FAVOURITES, 0, rng.random(len(user)) * orders.per_user[user]).astype(
        np.int64
    )
    life = 1 + rng.exponential(MEAN_LIFE_ORDERS, len(user)).astype(np.int64)
    orders_long = np.minimum(first_order + life, orders.per_user[user]) - first_order
    is_staple = rng.random(len(user)) < STAPLE_SHARE
    chance = rng.uniform(0.3, 0.9, len(user))
    period = rng.integers(*HABIT_PERIODS, len(user))
    phase = rng.integers(0, HABIT_PERIODS[1], len(user))

    favourite = np.repeat(np.arange(len(user)), orders_long)
    number = np.arange(len(favourite)) - np.repeat(np.cumsum(orders_long) - orders_long, orders_long)
    due = is_staple[favourite] | ((number + phase[favourite]) % period[favourite] == 0)
    likely = np.where(is_staple, chance, HABIT_KEPT)[favourite]
    is_bought = due & (rng.random(len(favourite), dtype=np.float32) < likely)
    favourite, number = favourite[is_bought], number[is_bought]
    order = orders.first[user[favourite]] + first_order[favourite] + number
    return np.asarray(order * (catalog.products + 1) + product[favourite])


def _new_items(
    orders: UserOrders, taste: NDArray[np.int64], catalog: ProductCatalog, rng: np.random.Generator
) -> NDArray[np.int64]:
    counts = 1 + rng.poisson((MEAN_NEW_ITEMS - 1) * orders.appetite[orders.user])
    order = np.repeat(np.arange(len(orders.user)), counts)
    return order * (catalog.products + 1) + catalog.draw(taste[orders.user[order]], rng)


def _is_reorder(user: NDArray[np.int64], product: NDArray[np.int64], width: int) -> NDArray[np.bool_]:
    """Return whether the user bought the product in an earlier line; lines are in order of time."""
    pair = user * width + product
    by_pair = np.argsort(pair, kind="stable")
    is_repeat = np.concatenate([[False], np.diff(pair[by_pair]) == 0])
    is_reorder = np.empty(len(pair), dtype=bool)
    is_reorder[by_pair] = is_repeat
    return is_reorder


def _number_carts(
    order: NDArray[np.int64],
    product: NDArray[np.int64],
    is_reorder: NDArray[np.bool_],
    rng: np.random.Generator,
) -> OrderLines:
    """Number the lines of each order by cart position, known products tend to come first; cap the largest orders."""
    hurry = rng.random(len(order)) + ~is_reorder * 0.5
    by_cart = np.argsort(order + hurry / 2, kind="stable")
    counts = np.bincount(order)
    number = np.empty(len(order), dtype=np.int64)
    number[by_cart] = 1 + np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    in_cart = number <= LARGEST_BASKET
    return OrderLines(order[in_cart], product[in_cart], number[in_cart], is_reorder[in_cart])
