"""TIFUKNN (Hu et al., SIGIR 2020): the user's decayed counts, mixed with those of the nearest training users.

Everything is sparse. A query's inner products with the pool are one sparse product into a dense vector: short histories
lie near everybody without sharing a product, so the neighbours cannot be found among those that share one. Values that
differ by rounding alone count as equal.
"""

import numpy as np
from scipy import sparse

from nest_model.data.seqsets import offsets_of
from nest_model.next_set.baskets import Baskets
from nest_model.next_set.frequent import Everybody
from nest_model.next_set.questions import Histories, LearningData
from nest_model.next_set.ranking import Ranking
from nest_model.next_set.system import Recommender
from nest_model.next_set.tifuknn_options import TifuknnOptions
from nest_model.training.telemetry import Telemetry

USERS_AT_A_TIME = 500
TRAINING_USERS_AT_A_TIME = 20_000
DISTANCE_STEP = 2.0**-40
SCORE_BITS = 44


def user_vectors(baskets: Baskets, options: TifuknnOptions) -> sparse.csr_matrix:
    """Return the weight of each product in each user's history, f64 [users, products]."""
    parts = [
        _vectors(baskets.take(np.arange(block.start, block.stop)), options)
        for block in baskets.blocks(TRAINING_USERS_AT_A_TIME)
    ]
    if not parts:
        return sparse.csr_matrix((0, baskets.products))
    return parts[0] if len(parts) == 1 else sparse.vstack(parts, format="csr")


def _vectors(baskets: Baskets, options: TifuknnOptions) -> sparse.csr_matrix:
    weights = basket_weights(baskets, options)
    vectors = sparse.csr_matrix(
        (
            weights[baskets.basket_of_line],
            baskets.items.copy(),  # which summing duplicates would sort in place
            offsets_of(baskets.lines_of_user),
        ),
        shape=(len(baskets), baskets.products),
    )
    vectors.sum_duplicates()
    return vectors


def basket_weights(baskets: Baskets, options: TifuknnOptions) -> np.ndarray:
    """Return what each basket adds to its user's vector, f64 [baskets].

    A history of n ≥ m baskets has m groups of ⌊n/m⌋, the last n mod m of them one longer; a shorter one has n groups of
    one, whose weights are those of the last of m groups counted from the front, as in the authors' program.
    """
    since = baskets.baskets_since.astype(np.int64)
    length = baskets.lengths[baskets.user_of_basket]
    place = length - 1 - since
    groups = np.minimum(length, options.m)
    size, longer = length // groups, length % groups
    in_shorter = (groups - longer) * size
    is_shorter = place < in_shorter
    group = np.where(is_shorter, place // size, groups - longer + (place - in_shorter) // (size + 1))
    size_of_group = np.where(is_shorter, size, size + 1)
    if options.decay == "group":
        start = np.where(is_shorter, group * size, in_shorter + (group - (groups - longer)) * (size + 1))
        since = start + size_of_group - 1 - place
    mean_of_group = options.r_b ** since.astype(np.float64) / size_of_group
    weights: np.ndarray = options.r_g ** (options.m - 1.0 - group) * mean_of_group / groups
    return weights


class Neighbours(Recommender):
    """alpha · the user's vector + (1 - alpha) · the mean of the nearest training users' vectors."""

    def __init__(self, data: LearningData, options: TifuknnOptions, telemetry: Telemetry) -> None:
        self.options, self.telemetry = options, telemetry
        self.order = Everybody(data).order
        self.nameable = data.training.product_id
        self.subject_id = data.training.subject_id
        self.pool = user_vectors(data.training, options)
        self.pool_by_product = self.pool.T.tocsr()
        self.squares = np.asarray(self.pool.multiply(self.pool).sum(axis=1)).ravel()

    def rank(self, histories: Histories, k: int) -> Ranking:
        progress = self.telemetry.progress("tifuknn", total=len(histories), unit="users")
        parts = []
        for block in histories.baskets.blocks(USERS_AT_A_TIME):
            baskets = histories.baskets.take(np.arange(block.start, block.stop))
            user, item, scores = _highest(self._scores(baskets), k)
            parts.append(
                self.order.rank_pairs(len(baskets), user, item, scores, histories.baskets.product_id, k)
            )
            progress.advance(len(baskets))
        return Ranking.joined(parts)

    def _scores(self, baskets: Baskets) -> sparse.csr_matrix:
        vectors = user_vectors(baskets, self.options)
        if self.options.alpha == 1:
            return vectors
        neighbours = [
            self._nearest(vectors.indices[row], vectors.data[row], subject)
            for row, subject in zip(_rows(vectors), baskets.subject_id, strict=True)
        ]
        counts = np.array([len(nearest) for nearest in neighbours])
        selector = sparse.csr_matrix(
            (np.repeat(1 / np.maximum(counts, 1), counts), np.concatenate(neighbours), offsets_of(counts)),
            shape=(len(baskets), self.pool.shape[0]),
        )
        return (self.options.alpha * vectors + (1 - self.options.alpha) * (selector @ self.pool)).tocsr()

    def _nearest(self, item: np.ndarray, weight: np.ndarray, subject: int) -> np.ndarray:
        """Return the places of the k nearest training users, i64, ascending; never the user's own."""
        inner = self.pool_by_product[item].T @ weight
        distance = np.rint((self.squares - 2 * inner) / DISTANCE_STEP)  # less the query's own square
        own = np.searchsorted(self.subject_id, subject)
        others = len(distance)
        if own < len(distance) and self.subject_id[own] == subject:
            distance[own] = np.inf
            others -= 1
        k = min(self.options.k, others)
        if k == 0:
            return np.array([], dtype=np.int64)
        farthest = np.partition(distance, k - 1)[k - 1]
        nearer = np.flatnonzero(distance < farthest)
        as_far = np.flatnonzero(distance == farthest)[: k - len(nearer)]  # the lowest subject ids
        return np.sort(np.concatenate([nearer, as_far]))


def _rows(matrix: sparse.csr_matrix) -> list[slice]:
    return [slice(start, end) for start, end in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)]


def _highest(scores: sparse.csr_matrix, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return user, item and score of what can be among each user's best k: all that equals the k-th, no zero."""
    values = _without_rounding(scores.data)
    places_of_user = []
    for row in _rows(scores):
        own = values[row]
        threshold = np.partition(own, len(own) - k)[len(own) - k] if len(own) > k else 0.0
        places_of_user.append(row.start + np.flatnonzero((own >= threshold) & (own > 0)))
    user = np.repeat(np.arange(len(places_of_user)), [len(places) for places in places_of_user])
    places = np.concatenate(places_of_user)
    return user, scores.indices[places], values[places]


def _without_rounding(values: np.ndarray) -> np.ndarray:
    """Return the values to SCORE_BITS significant bits, in which sums taken in another order are equal."""
    mantissa, exponent = np.frexp(values)
    rounded_values: np.ndarray = np.ldexp(np.rint(np.ldexp(mantissa, SCORE_BITS)), exponent - SCORE_BITS)
    return rounded_values
