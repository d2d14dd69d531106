"""The features of a user and a product."""

import statistics as plain
from itertools import pairwise

import numpy as np
import pytest

from nest_model.next_set.personal import DECAY, FEATURES, ProductStatistics, Standardisation, features
from nest_model.next_set.questions import Histories
from tests.support.factories.histories import baskets_of, histories_of, random_shop

NAN = float("nan")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def random_days(rng: np.random.Generator, shop: dict[int, list[list[int]]]) -> dict[int, list[float]]:
    return {
        user: np.cumsum(rng.integers(0, 15, len(baskets))).astype(float).tolist()
        for user, baskets in shop.items()
    }


def row_by_loop(
    baskets: list[list[int]], days: list[float], query_day: float, product: int
) -> dict[str, float]:
    """Return the features of a user and a product, of the definition alone."""
    n = len(baskets)
    at = [index for index, basket in enumerate(baskets) if product in basket]
    gaps = [later - earlier for earlier, later in pairwise(at)]
    day_gaps = [days[later] - days[earlier] for earlier, later in pairwise(at)]
    mean_gap = plain.mean(gaps) if gaps else NAN
    mean_day_gap = plain.mean(day_gaps) if day_gaps else NAN
    since, days_since = (n - at[-1], query_day - days[at[-1]]) if at else (NAN, NAN)
    earlier_products: set[int] = set()
    repeats, later_lines = 0, 0
    for index, basket in enumerate(baskets):
        repeats += len(earlier_products & set(basket))
        later_lines += len(basket) * (index > 0)
        earlier_products |= set(basket)
    all_gaps = [later - earlier for earlier, later in pairwise(days)]
    return {
        "count": len(at),
        "share_of_baskets": len(at) / n,
        "count_in_last_1": sum(index >= n - 1 for index in at),
        "count_in_last_3": sum(index >= n - 3 for index in at),
        "count_in_last_5": sum(index >= n - 5 for index in at),
        "baskets_since_last": since,
        "days_since_last": days_since,
        "mean_gap_baskets": mean_gap,
        "last_gap_baskets": gaps[-1] if gaps else NAN,
        "mean_gap_days": mean_day_gap,
        "last_gap_days": day_gaps[-1] if gaps else NAN,
        "baskets_since_last_over_mean_gap": since / mean_gap,
        "days_since_last_over_mean_gap": days_since / mean_day_gap if mean_day_gap else NAN,
        "baskets_since_first": n - at[0] if at else NAN,
        "decayed_count": sum(DECAY ** (n - 1 - index) for index in at),
        "baskets": n,
        "mean_basket_size": sum(map(len, baskets)) / n,
        "repeat_share": repeats / later_lines if later_lines else NAN,
        "median_gap_days": plain.median(all_gaps) if all_gaps else NAN,
        "query_gap_days": query_day - days[-1],
    }


def test_features_are_those_of_a_loop(rng: np.random.Generator) -> None:
    shop = random_shop(rng, users=12, products=9)
    days = random_days(rng, shop)
    baskets = baskets_of(shop, days=days, product_id=range(100, 110))
    histories = histories_of(baskets, gap_days=4)
    user, item = (grid.ravel() for grid in np.meshgrid(np.arange(12), np.arange(10), indexing="ij"))
    permutation = rng.permutation(len(user))
    user, item = user[permutation], item[permutation]
    rows = features(histories, user, item, ProductStatistics.of(baskets))
    assert rows.dtype == np.float32
    everybody = [set(basket) for user_baskets in shop.values() for basket in user_baskets]
    for row, (place, product) in zip(rows, zip(user, item, strict=True), strict=True):
        own = days[place + 1]
        expected = row_by_loop(shop[place + 1], own, own[-1] + 4, 100 + product)
        purchases = sum(100 + product in basket for basket in everybody)
        buyers = sum(any(100 + product in basket for basket in baskets) for baskets in shop.values())
        expected["popularity"] = purchases / len(everybody)
        expected["reorder_share"] = (purchases - buyers) / purchases if purchases else NAN
        np.testing.assert_allclose(row, [expected[name] for name in FEATURES], rtol=1e-6)


def test_features_of_a_label_do_not_change_with_the_label_and_what_follows(rng: np.random.Generator) -> None:
    shop = {user: [[100], *baskets] for user, baskets in random_shop(rng).items()}
    other_shop = {
        user: [*baskets[:-1], [100 + (product + 3) % 15 for product in range(4)]]
        for user, baskets in shop.items()
    }
    tables = []
    for version in (shop, other_shop):
        training = baskets_of(version, product_id=range(100, 115))
        before = training.first(training.lengths - 1)
        histories = Histories(before, training.days[training.basket_offsets[1:] - 1])
        user, item = (grid.ravel() for grid in np.meshgrid(np.arange(len(before)), np.arange(15)))
        tables.append(features(histories, user, item, ProductStatistics.of(before)))
    np.testing.assert_array_equal(*tables)
    assert (tables[0][:, FEATURES.index("count")] > 0).any()


def test_features_of_a_pair_do_not_depend_on_the_other_users(rng: np.random.Generator) -> None:
    baskets = baskets_of(random_shop(rng))
    statistics = ProductStatistics.of(baskets)
    histories = histories_of(baskets)
    item = np.arange(baskets.products)
    together = features(histories, np.full(len(item), 7), item, statistics)
    alone = features(histories.take(np.array([7])), np.zeros(len(item), dtype=int), item, statistics)
    np.testing.assert_array_equal(together, alone)


def test_features_of_no_pair_and_of_no_basket_are_empty_and_without_value() -> None:
    baskets = baskets_of({1: [[5]]})
    statistics = ProductStatistics.of(baskets)
    none = np.array([], dtype=np.int64)
    assert features(histories_of(baskets), none, none, statistics).shape == (0, len(FEATURES))
    empty = Histories(baskets.first(np.array([0])), np.array([0], dtype=np.float32))
    row = features(empty, np.array([0]), np.array([0]), ProductStatistics.of(empty.baskets))[0]
    values = dict(zip(FEATURES, row, strict=True))
    assert values["count"] == values["popularity"] == values["baskets"] == 0
    assert np.isnan(values["days_since_last"])
    assert np.isnan(values["query_gap_days"])


def test_standardisation_gives_missing_values_the_mean_and_leaves_a_constant_at_zero() -> None:
    rows = np.array([[1, 5, NAN], [3, 5, NAN], [NAN, 5, NAN]], dtype=np.float32)
    standard = Standardisation.of(rows).apply(rows)
    np.testing.assert_allclose(standard, [[-1, 0, 0], [1, 0, 0], [0, 0, 0]], atol=1e-6)


@pytest.mark.parametrize("product", [0, 1])
def test_reorder_share_counts_purchases_after_the_first_of_each_user(product: int) -> None:
    baskets = baskets_of({1: [[10, 11], [10], [10]], 2: [[10, 11]]})
    statistics = ProductStatistics.of(baskets)
    assert statistics.reorder_share[product] == (0.5, 0.0)[product]
    assert statistics.popularity[product] == (1.0, 0.5)[product]
