"""The one order of ranked products: exact at ties, and no faulty score or list goes unnoticed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest_model.next_set.ranking import NO_PRODUCT, Ranking, TieOrder, is_tied
from schemas.errors import NestError


def sorted_by_hand(
    scores: np.ndarray, popularity: np.ndarray, product_id: np.ndarray, k: int
) -> list[list[int]]:
    """Return each user's products by descending score and popularity and ascending id."""
    lists = []
    for row in scores:
        items = [item for item in range(len(row)) if row[item] > -np.inf]
        items.sort(key=lambda item: (-row[item], -popularity[item], product_id[item]))
        ids = [int(product_id[item]) for item in items[:k]]
        lists.append(ids + [NO_PRODUCT] * (k - len(ids)))
    return lists


@st.composite
def tied_scores(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Return scores of few values, so that most tie, popularity of few values, product ids and k."""
    users, products = draw(st.integers(1, 4)), draw(st.integers(1, 9))
    chance = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scores = chance.choice([-np.inf, -1.5, 0.0, 2.0], (users, products))
    product_id = np.sort(chance.choice(1000, products, replace=False))
    return scores, chance.integers(0, 3, products), product_id, draw(st.integers(1, 12))


@given(tied_scores())
def test_dense_ranking_is_a_full_sort(draws: tuple[np.ndarray, np.ndarray, np.ndarray, int]):
    scores, popularity, product_id, k = draws
    ranking = TieOrder.by_popularity(popularity).rank_dense(scores, product_id, k)
    assert ranking.product_id.tolist() == sorted_by_hand(scores, popularity, product_id, k)
    assert (np.isnan(ranking.scores) == (ranking.product_id == NO_PRODUCT)).all()
    assert (np.diff(ranking.scores, axis=1)[~np.isnan(ranking.scores[:, 1:])] <= 0).all()


@given(tied_scores(), st.randoms(use_true_random=False))
def test_ranking_of_pairs_in_any_order_is_the_dense_one(draws, random):
    scores, popularity, product_id, k = draws
    order = TieOrder.by_popularity(popularity)
    pairs = list(zip(*np.nonzero(scores > -np.inf), strict=True))
    random.shuffle(pairs)
    user, item = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    ranking = order.rank_pairs(len(scores), user, item, scores[user, item], product_id, k)
    dense = order.rank_dense(scores, product_id, k)
    np.testing.assert_array_equal(ranking.product_id, dense.product_id)
    np.testing.assert_array_equal(ranking.scores, dense.scores)


def test_tie_keys_decide_before_popularity():
    order = TieOrder.by_popularity(np.array([9, 5, 1]))
    user, item, scores = np.zeros(3, dtype=np.int64), np.arange(3), np.array([1.0, 1.0, 2.0])
    ranking = order.rank_pairs(
        1, user, item, scores, np.array([10, 20, 30]), 3, tie_keys=(np.array([1, 0, 9]),)
    )
    assert ranking.product_id.tolist() == [[30, 20, 10]]


def test_nan_score_is_refused():
    order, ids, scores = TieOrder.by_popularity(np.array([1, 2])), np.array([4, 5]), np.array([np.nan, 1.0])
    with pytest.raises(NestError, match="1 of 2 scores are NaN"):
        order.rank_dense(scores[None], ids, 1)
    with pytest.raises(NestError, match="1 of 2 scores are NaN"):
        order.rank_pairs(1, np.array([0, 0]), np.array([0, 1]), scores, ids, 1)


@pytest.mark.parametrize(
    ("ids", "scores", "message"),
    [
        ([[1, 2, 1], [1, 2, 3]], [[3, 2, 1], [3, 2, 1]], "1 of 2 lists repeat a product"),
        ([[1, NO_PRODUCT, 2]], [[3, np.nan, 1]], "1 of 1 lists have a gap"),
        ([[1, 2]], [[np.nan, 1]], "1 of 1 lists rank a score that is not finite"),
        ([[1, 2]], [[np.inf, 1]], "1 of 1 lists rank a score that is not finite"),
    ],
)
def test_faulty_list_is_refused(ids: list, scores: list, message: str):
    with pytest.raises(NestError, match=f"mine: {message}"):
        Ranking(np.array(ids), np.array(scores, dtype=np.float32)).refuse_invalid("mine")


def test_short_and_empty_lists_are_valid():
    ids = np.array([[1, 2, NO_PRODUCT], [NO_PRODUCT] * 3])
    Ranking(ids, np.where(ids == NO_PRODUCT, np.nan, 1.0)).refuse_invalid("mine")


def test_is_tied_counts_users_whose_last_place_could_be_another_products():
    scores = np.array([[3, 2, 2], [3, 2, 1], [3, np.nan, np.nan], [2, 2, 1]], dtype=np.float32)
    ranking = Ranking(np.zeros_like(scores, dtype=np.int64), scores)
    assert is_tied(ranking, 2).mean() == 0.25
    assert not is_tied(ranking, 3).any()
