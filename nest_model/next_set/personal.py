"""What a user's history says of one product: the features of a (user, product) pair, for every system that learns them.

Distances in baskets and days run to the basket asked for, so that a product of the last basket is 1 basket away, as a
product bought in every basket has a mean gap of 1. A feature is NaN where it has no value: the gaps of a product bought
once, everything but the counts of a product never bought.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from nest_model.data.seqsets import offsets_of
from nest_model.next_set.baskets import Baskets
from nest_model.next_set.frequent import user_products
from nest_model.next_set.questions import Histories, median_gaps

DECAY = 0.9
LATEST = (1, 3, 5)

OF_PAIR = (
    "count",
    "share_of_baskets",
    *(f"count_in_last_{baskets}" for baskets in LATEST),
    "baskets_since_last",
    "days_since_last",
    "mean_gap_baskets",
    "last_gap_baskets",
    "mean_gap_days",
    "last_gap_days",
    "baskets_since_last_over_mean_gap",
    "days_since_last_over_mean_gap",
    "baskets_since_first",
    "decayed_count",
)
OF_PRODUCT = ("popularity", "reorder_share")
OF_USER = ("baskets", "mean_basket_size", "repeat_share", "median_gap_days", "query_gap_days")
FEATURES = (*OF_PAIR, *OF_PRODUCT, *OF_USER)
COUNTS = ("count", "share_of_baskets", *(f"count_in_last_{baskets}" for baskets in LATEST), "decayed_count")
"""The features that are 0, not NaN, for a product the user never bought."""


@dataclass(frozen=True)
class ProductStatistics:
    """How everybody buys each product; where labels are learnt, from baskets before all of them."""

    popularity: np.ndarray  # f32 [products], the share of baskets that hold it
    reorder_share: (
        np.ndarray
    )  # f32 [products], of its purchases those after the same user's first; NaN: never bought

    @classmethod
    def of(cls, baskets: Baskets) -> Self:
        """Return the statistics of these baskets."""
        lines = np.bincount(baskets.items, minlength=baskets.products)
        _, item, _ = user_products(baskets)
        buyers = np.bincount(item, minlength=baskets.products)
        return cls(
            (lines / max(len(baskets.days), 1)).astype(np.float32),
            _ratio(lines - buyers, lines).astype(np.float32),
        )


def features(
    histories: Histories, user: np.ndarray, item: np.ndarray, statistics: ProductStatistics
) -> np.ndarray:
    """Return the features of (user, product) pairs, f32 [pairs, len(FEATURES)], from the histories alone.

    Args:
        user: place in `histories`, i64 [pairs].
        item: place among the shop's products, i64 [pairs].
    """
    baskets = histories.baskets
    purchases = _Purchases.of(baskets)
    columns = purchases.features(histories)
    rows = purchases.find(user, item)
    of_user = _of_user(histories, purchases)
    of_product = {"popularity": statistics.popularity, "reorder_share": statistics.reorder_share}
    table = np.empty((len(user), len(FEATURES)), dtype=np.float32)
    for place, name in enumerate(FEATURES):
        if name in OF_PAIR:
            table[:, place] = np.append(columns[name], 0.0 if name in COUNTS else np.nan)[rows]
        else:
            table[:, place] = of_product[name][item] if name in of_product else of_user[name][user]
    return table


@dataclass(frozen=True)
class Standardisation:
    """The mean and deviation of each feature over training rows, for models that need rows of one scale."""

    mean: np.ndarray  # f32 [features]
    deviation: np.ndarray  # f32 [features], 1 for a constant feature

    @classmethod
    def of(cls, rows: np.ndarray) -> Self:
        """Return those of f32 [rows, features], of the values that are there."""
        is_value = np.isfinite(rows)
        counts = np.maximum(is_value.sum(axis=0), 1)
        mean = np.where(is_value, rows, 0).sum(axis=0, dtype=np.float64) / counts
        variance = np.where(is_value, rows - mean, 0) ** 2
        deviation = np.sqrt(variance.sum(axis=0, dtype=np.float64) / counts)
        return cls(mean.astype(np.float32), np.where(deviation > 1e-6, deviation, 1).astype(np.float32))

    def apply(self, rows: np.ndarray) -> np.ndarray:
        """Return the rows standardised, f32 [rows, features]; a feature without a value has the mean, 0."""
        standard: np.ndarray = np.nan_to_num((rows - self.mean) / self.deviation, nan=0.0)
        return standard.astype(np.float32)


@dataclass(frozen=True)
class _Purchases:
    """Every (user, product) of some baskets, sorted, and where its purchases are."""

    baskets: Baskets
    user: np.ndarray  # i64 [pairs]
    item: np.ndarray  # i64 [pairs]
    basket: np.ndarray  # i32 [lines], by pair and within a pair by time
    offsets: np.ndarray  # i64 [pairs + 1] into `basket`

    @classmethod
    def of(cls, baskets: Baskets) -> Self:
        user, item, pair = user_products(baskets)
        counts = np.bincount(pair, minlength=len(user))
        by_pair = np.argsort(pair, kind="stable")
        return cls(baskets, user, item, baskets.basket_of_line[by_pair], offsets_of(counts))

    def find(self, user: np.ndarray, item: np.ndarray) -> np.ndarray:
        """Return the place of each pair, i64, and the number of pairs for one that was never bought."""
        keys = self.user * self.baskets.products + self.item
        pair_keys = np.asarray(user, dtype=np.int64) * self.baskets.products + item
        place = np.searchsorted(keys, pair_keys)
        is_there = np.append(keys, -1)[place] == pair_keys
        return np.where(is_there, place, len(keys))

    def features(self, histories: Histories) -> dict[str, np.ndarray]:
        """Return the features of every pair that was bought, each [pairs]."""
        days, since = self.baskets.days, self.baskets.baskets_since + 1
        count = np.diff(self.offsets)
        pair = np.repeat(np.arange(len(count)), count)
        first, last = self.basket[self.offsets[:-1]], self.basket[self.offsets[1:] - 1]
        previous = self.basket[np.maximum(self.offsets[1:] - 2, 0)]
        is_repeat = count > 1
        to_query = histories.query_days[self.user] - days[last]
        values = {
            "count": count,
            "share_of_baskets": count / self.baskets.lengths[self.user],
            "baskets_since_last": since[last],
            "days_since_last": to_query,
            "mean_gap_baskets": _ratio(last - first, count - 1),
            "last_gap_baskets": np.where(is_repeat, last - previous, np.nan),
            "mean_gap_days": _ratio(days[last] - days[first], count - 1),
            "last_gap_days": np.where(is_repeat, days[last] - days[previous], np.nan),
            "baskets_since_first": since[first],
        }
        for unit, distance in (("baskets", since[last]), ("days", to_query)):
            values[f"{unit}_since_last_over_mean_gap"] = _ratio(distance, values[f"mean_gap_{unit}"])
        since_of_line = since[self.basket]
        for baskets in LATEST:
            values[f"count_in_last_{baskets}"] = np.bincount(
                pair, since_of_line <= baskets, minlength=len(count)
            )
        weights = DECAY ** (since_of_line.astype(np.float64) - 1)
        values["decayed_count"] = np.bincount(pair, weights, minlength=len(count))
        return values


def _of_user(histories: Histories, purchases: _Purchases) -> dict[str, np.ndarray]:
    """Return the features of every user, each [users]."""
    baskets = histories.baskets
    lines, counts = baskets.lines_of_user, baskets.lengths
    is_first = np.append(True, np.diff(baskets.user_of_basket) > 0)[: len(baskets.days)]
    first_lines = np.zeros(len(baskets), dtype=np.int64)
    first_lines[baskets.user_of_basket[is_first]] = baskets.sizes[is_first]
    distinct = np.bincount(purchases.user, minlength=len(baskets))
    last_day = np.full(len(baskets), np.nan, dtype=np.float32)
    last_day[counts > 0] = baskets.days[baskets.basket_offsets[1:][counts > 0] - 1]
    return {
        "baskets": counts,
        "mean_basket_size": _ratio(lines, counts),
        "repeat_share": _ratio(lines - distinct, lines - first_lines),
        "median_gap_days": median_gaps(baskets),
        "query_gap_days": histories.query_days - last_day,
    }


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Return the quotients, f64, NaN where the denominator is 0."""
    quotient = np.full(len(numerator), np.nan)
    np.divide(numerator, denominator, out=quotient, where=denominator != 0)
    return quotient
