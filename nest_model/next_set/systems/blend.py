"""The yardstick: the user's decayed counts blended with what everybody buys; the strongest that costs nothing."""

import numpy as np
from pydantic import Field

from nest_model.next_set.baskets import Baskets
from nest_model.next_set.frequent import Everybody, user_products
from nest_model.next_set.questions import Histories, LearningData, Questions
from nest_model.next_set.ranking import Ranking
from nest_model.next_set.system import NextBasketOptions, NextBasketSystem, Recommender

_USERS_AT_A_TIME = 1_000


class BlendOptions(NextBasketOptions):
    decay: float = Field(0.9, gt=0, le=1, description="Weight of a basket relative to the next.")
    own: float = Field(
        0.9, ge=0, le=1, description="Weight of the user's own counts; the rest is everybody's."
    )
    unit: str = Field(
        "share",
        pattern="^(share|count)$",
        description="What own counts are: shares of the user's (decayed) baskets, or counts.",
    )


class BlendRecommender(Recommender):
    """own · the user's decayed counts + (1 - own) · the share of training baskets that hold the product."""

    def __init__(self, data: LearningData, options: BlendOptions) -> None:
        self.everybody, self.options = Everybody(data), options
        baskets = max(len(data.training.days), 1)
        self.shares = self.everybody.popularity / baskets
        self.nameable = data.training.product_id

    def rank(self, histories: Histories, k: int) -> Ranking:
        baskets = histories.baskets
        blocks = (np.arange(block.start, block.stop) for block in baskets.blocks(_USERS_AT_A_TIME))
        return Ranking.joined([self._rank_block(baskets.take(users), k) for users in blocks])

    def _rank_block(self, baskets: Baskets, k: int) -> Ranking:
        options, users = self.options, len(baskets)
        user, item, pair = user_products(baskets)
        weights = options.decay ** baskets.baskets_since.astype(np.float64)
        own = np.bincount(pair, weights[baskets.basket_of_line], minlength=len(user))
        if options.unit == "share":
            own = own / np.bincount(baskets.user_of_basket, weights, minlength=users)[user]
        # of products the user never bought only the most popular can be listed
        popular = np.argsort(self.everybody.order.place)[: k + int(np.bincount(user, minlength=1).max())]
        popular = popular[self.shares[popular] > 0]
        all_user = np.concatenate([user, np.repeat(np.arange(users), len(popular))])
        all_item = np.concatenate([item, np.tile(popular, users)])
        all_own = np.concatenate([own, np.zeros(users * len(popular))])
        _, first = np.unique(all_user * baskets.products + all_item, return_index=True)
        scores = options.own * all_own[first] + (1 - options.own) * self.shares[all_item[first]]
        return self.everybody.order.rank_pairs(
            users, all_user[first], all_item[first], scores, baskets.product_id, k
        )


class Blend(NextBasketSystem):
    title = "Own counts + popularity"
    about = "The user's decayed counts blended with the share of training baskets that hold a product."
    Options = BlendOptions
    search = {
        "decay": (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0),
        "own": (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98),
        "unit": ("share", "count"),
    }

    def fit(self, data: LearningData, validation: Questions | None, seed: int) -> BlendRecommender:
        return BlendRecommender(data, self.options)


SYSTEM = Blend
