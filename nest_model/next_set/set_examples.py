"""Label baskets of training users with the history before each: what set fine-tuning learns from.

An example is a prefix of a user's baskets and the basket that came next. Its history is cut before the label, never
read off a longer one.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from nest_model.data.seqsets import expand_ranges, offsets_of
from nest_model.next_set.frequent import user_products
from nest_model.next_set.labels import histories_before, lowest_hashes
from nest_model.next_set.personal import DECAY, FEATURES, ProductStatistics, Standardisation, features
from nest_model.next_set.questions import Histories, LearningData


@dataclass(frozen=True)
class HistoryPairs:
    """Every distinct (user, product) of some histories, by user and product, with its features."""

    offsets: np.ndarray  # i64 [users + 1] into the pairs
    item: np.ndarray  # i64 [pairs]
    features: np.ndarray  # f32 [pairs, features], as personal.py has them
    log_share: np.ndarray  # f32 [pairs], of the user's decayed baskets, those that hold the product
    baskets: np.ndarray  # f32 [pairs], how many the user has

    @classmethod
    def of(cls, histories: Histories, statistics: ProductStatistics) -> Self:
        """Return the pairs of all histories."""
        user, item, _ = user_products(histories.baskets)
        rows = features(histories, user, item, statistics)
        baskets = histories.baskets.lengths[user].astype(np.float32)
        weight = (1 - DECAY**baskets) / (1 - DECAY)  # of all baskets of the user
        log_share = np.log(rows[:, FEATURES.index("decayed_count")] / weight)
        offsets = offsets_of(np.bincount(user, minlength=len(histories)))
        return cls(offsets, item, rows, log_share.astype(np.float32), baskets)

    def standardised(self, scale: Standardisation) -> Self:
        """Return the pairs with features of one scale."""
        return replace(self, features=squashed(scale.apply(self.features)))

    def take(self, users: np.ndarray) -> Self:
        """Return the pairs of the users at these places."""
        counts = np.diff(self.offsets)[users]
        pairs = expand_ranges(self.offsets[users], counts)
        return type(self)(
            offsets_of(counts),
            self.item[pairs],
            self.features[pairs],
            self.log_share[pairs],
            self.baskets[pairs],
        )


@dataclass(frozen=True)
class Examples:
    """Histories and the products of the basket that came next."""

    histories: Histories
    truth_offsets: np.ndarray  # i64 [examples + 1]
    truth: np.ndarray  # i64 [truths], place of each product

    def __len__(self) -> int:
        return len(self.histories)

    @classmethod
    def of(cls, data: LearningData, *, label_positions: int, most: int) -> Self:
        """Return the examples of the training users' last baskets.

        Args:
            label_positions: how many of each user's last baskets are labels; a user's first is never one.
            most: examples; beyond it, users are left out by the hash of their id.
        """
        data = lowest_hashes(data, -(-most // label_positions))
        training = data.training
        labels = np.clip(training.lengths - 1, 0, label_positions)
        user = np.repeat(np.arange(len(training)), labels)
        back = np.arange(len(user)) - offsets_of(labels)[:-1][user]
        before = training.lengths[user] - 1 - back
        label = training.basket_offsets[user] + before
        sizes = training.sizes[label]
        truth = training.items[expand_ranges(training.item_offsets[label], sizes)].astype(np.int64)
        return cls(histories_before(data, training, user, before), offsets_of(sizes), truth)


def squashed(rows: np.ndarray) -> np.ndarray:
    """Return sign(x) · log(1 + |x|) of standardised features: counts and gaps have long tails."""
    short: np.ndarray = np.sign(rows) * np.log1p(np.abs(rows))
    return short


def statistics_before_labels(data: LearningData, label_positions: int) -> ProductStatistics:
    """Return how everybody buys each product, of the training baskets before every label."""
    return ProductStatistics.of(data.training.first(data.training.lengths - label_positions))
