"""Rankings of products, and the one order in which equal scores stand.

Products stand by descending score; equal scores by descending popularity among the training baskets, then by ascending
product id. A product id may carry popularity, if ids were handed out by it, so it decides last.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from nest_model.data.seqsets import offsets_of
from schemas.errors import NestError

NO_PRODUCT = -1
K = 10
LISTED = 2 * K + 1
"""How many products a kept list holds: the 20 that are scored, and one more to see whether place 20 was a tie."""


@dataclass(frozen=True)
class Ranking:
    """The best products of each user, best first; a short list ends with NO_PRODUCT and a score of NaN."""

    product_id: np.ndarray  # i64 [users, k]
    scores: np.ndarray  # f64 [users, k]

    @classmethod
    def joined(cls, parts: Sequence["Ranking"]) -> Self:
        """Return the rankings of several blocks of users as one."""
        return cls(
            np.concatenate([part.product_id for part in parts]),
            np.concatenate([part.scores for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.product_id)

    def refuse_invalid(self, system: str) -> None:
        """Raise NestError if a list repeats a product, has a gap, or ranks a score that is not finite."""
        in_order = np.sort(self.product_id, axis=1)
        is_listed = self.product_id != NO_PRODUCT
        faults = {
            "repeat a product": (np.diff(in_order, axis=1) == 0) & (in_order[:, 1:] != NO_PRODUCT),
            "have a gap": is_listed[:, 1:] & ~is_listed[:, :-1],
            "rank a score that is not finite": is_listed & ~np.isfinite(self.scores),
        }
        for fault, is_faulty in faults.items():
            if users := int(np.count_nonzero(is_faulty.any(axis=1))):
                raise NestError(
                    f"{system}: {users:,} of {len(self):,} lists {fault}; nothing is scored. Correct the system."
                )


@dataclass(frozen=True)
class TieOrder:
    """The order of equally scored products."""

    place: np.ndarray  # i32 [products], 0 for the most popular

    @classmethod
    def by_popularity(cls, popularity: np.ndarray) -> Self:
        """Order products by how many training baskets hold them, [products], then by product id."""
        place = np.empty(len(popularity), dtype=np.int32)
        place[np.argsort(-popularity, kind="stable")] = np.arange(len(popularity), dtype=np.int32)
        return cls(place)

    def rank_dense(self, scores: np.ndarray, product_id: np.ndarray, k: int) -> Ranking:
        """Rank every product of each user, exactly: [users, products], -inf for a product that may not be listed.

        Raises:
            NestError: a score is NaN.
        """
        _refuse_nan(scores)
        users, products = scores.shape
        size = min(k, products)
        threshold = np.partition(scores, products - size, axis=1)[:, products - size, None]
        user, item = np.nonzero((scores >= threshold) & (scores > -np.inf))
        return self.rank_pairs(users, user, item, scores[user, item], product_id, k)

    def rank_pairs(
        self,
        users: int,
        user: np.ndarray,
        item: np.ndarray,
        scores: np.ndarray,
        product_id: np.ndarray,
        k: int,
        *,
        tie_keys: Sequence[np.ndarray] = (),
    ) -> Ranking:
        """Rank the products that have a score: one row per (user, item), in any order.

        Args:
            users: how many lists there are; a user without a row has an empty one.
            user: i64 [rows], place of the user.
            item: i64 [rows], place of the product.
            scores: [rows].
            product_id: i64 [products].
            k: the length of a list, where a user has that many rows.
            tie_keys: [rows] each; the lower key of equal scores comes first, whatever its popularity; the last key is
                the most important.

        Raises:
            NestError: a score is NaN.
        """
        _refuse_nan(scores)
        order = np.lexsort((self.place[item], *tie_keys, -scores, user))
        user, item, scores = user[order], item[order], scores[order]
        starts = offsets_of(np.bincount(user, minlength=users))[:-1]
        place = np.arange(len(user)) - starts[user]
        is_listed = place < k
        at = user[is_listed], place[is_listed]
        ranking = Ranking(np.full((users, k), NO_PRODUCT, dtype=np.int64), np.full((users, k), np.nan))
        ranking.product_id[at] = product_id[item[is_listed]]
        ranking.scores[at] = scores[is_listed]
        return ranking


def _refuse_nan(scores: np.ndarray) -> None:
    """Raise NestError if a score is NaN: a sort would put it last, and a faulty model would go unnoticed."""
    if count := int(np.count_nonzero(np.isnan(scores))):
        raise NestError(
            f"{count:,} of {scores.size:,} scores are NaN; nothing is ranked. Correct the system."
        )


def is_tied(ranking: Ranking, k: int) -> np.ndarray:
    """Return whether each user's products at places k and k + 1 have the same score, bool [users]."""
    if ranking.scores.shape[1] <= k:
        return np.zeros(len(ranking), dtype=bool)
    is_equal: np.ndarray = ranking.scores[:, k - 1] == ranking.scores[:, k]
    return is_equal
