"""Counting: what everybody buys, what the user bought, and both in turn or blended.

The counts are per basket, of products and not of tokens. In short histories most of a user's counts are equal, and the
rule for equal counts can move a row further than another system does, so it is an option of its own.
"""

from typing import Literal

import numpy as np
from pydantic import Field

from nest_model.next_set.baskets import Baskets
from nest_model.next_set.questions import Histories, LearningData
from nest_model.next_set.ranking import NO_PRODUCT, Ranking, TieOrder
from nest_model.next_set.system import NextBasketOptions, Recommender

Tie = Literal["popular", "recent", "first_seen"]
TIES: tuple[Tie, ...] = ("popular", "recent", "first_seen")


class TieOptions(NextBasketOptions):
    """The rule for products that the user bought equally often."""

    tie: Tie = Field(
        "recent",
        description="Order of equal counts: popular: everybody's counts; recent: the later last basket, then popular; "
        "first_seen: the earlier first basket, then the earlier place in the cart.",
    )


def user_products(baskets: Baskets) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return every distinct (user, product) of the baskets, sorted, and the pair of each line.

    Returns:
        user i64 [pairs], item i64 [pairs], pair i64 [lines].
    """
    keys = baskets.user_of_line.astype(np.int64) * baskets.products + baskets.items
    pairs, pair_of_line = np.unique(keys, return_inverse=True)
    return pairs // max(baskets.products, 1), pairs % max(baskets.products, 1), pair_of_line


class Everybody(Recommender):
    """The products most training baskets hold, for every user the same."""

    def __init__(self, data: LearningData) -> None:
        self.popularity = data.popularity()
        self.order = TieOrder.by_popularity(self.popularity)
        self.product_id = data.training.product_id
        self.nameable = self.product_id[self.popularity > 0]

    def rank(self, histories: Histories, k: int) -> Ranking:
        top = np.argsort(self.order.place)[:k]
        top = top[self.popularity[top] > 0]
        ids = np.full(k, NO_PRODUCT, dtype=np.int64)
        scores = np.full(k, np.nan)
        ids[: len(top)], scores[: len(top)] = self.product_id[top], self.popularity[top]
        return Ranking(np.tile(ids, (len(histories), 1)), np.tile(scores, (len(histories), 1)))


class OwnCounts(Recommender):
    """The user's own products by how many of the user's baskets hold them, each basket worth r times the next.

    With r = 1 these are plain counts.
    """

    def __init__(self, data: LearningData, *, decay: float = 1.0, tie: Tie = "popular") -> None:
        self.decay, self.tie = decay, tie
        self.everybody = Everybody(data)
        self.nameable = data.training.product_id

    def rank(self, histories: Histories, k: int) -> Ranking:
        baskets = histories.baskets
        user, item, pair = user_products(baskets)
        weights = self.decay ** baskets.baskets_since[baskets.basket_of_line].astype(np.float64)
        scores = np.bincount(pair, weights, minlength=len(user))
        return self.everybody.order.rank_pairs(
            len(histories),
            user,
            item,
            scores,
            baskets.product_id,
            k,
            tie_keys=self._tie_keys(baskets, pair, len(user)),
        )

    def _tie_keys(self, baskets: Baskets, pair: np.ndarray, pairs: int) -> tuple[np.ndarray, ...]:
        """Return the key whose lower value the rule prefers, i64 [pairs]; none where popularity decides."""
        if self.tie == "popular":
            return ()
        key = np.full(pairs, np.iinfo(np.int64).max)
        since = baskets.baskets_since[baskets.basket_of_line].astype(np.int64)
        if self.tie == "recent":
            np.minimum.at(key, pair, since)
            return (key,)
        cart_places = int(baskets.cart_places.max(initial=0)) + 1
        position = np.repeat(baskets.lengths, baskets.lines_of_user) - 1 - since
        np.minimum.at(key, pair, position * cart_places + baskets.cart_places)
        return (key,)


def fill(ranking: Ranking, filler: Ranking) -> Ranking:
    """Return lists in which the places that are left hold the filler's products, best first, that are not there yet.

    The filler's products score below the list's: -1, -2, ….
    """
    k = ranking.product_id.shape[1]
    full_lists = Ranking(ranking.product_id.copy(), ranking.scores.copy())
    for user in np.flatnonzero((ranking.product_id == NO_PRODUCT).any(axis=1)):
        own = ranking.product_id[user][ranking.product_id[user] != NO_PRODUCT]
        candidates = filler.product_id[user]
        new = candidates[(candidates != NO_PRODUCT) & ~np.isin(candidates, own)][: k - len(own)]
        full_lists.product_id[user, len(own) : len(own) + len(new)] = new
        lowest = min(0.0, float(np.nanmin(ranking.scores[user], initial=0.0)))
        full_lists.scores[user, len(own) : len(own) + len(new)] = lowest - 1 - np.arange(len(new))
    return full_lists
