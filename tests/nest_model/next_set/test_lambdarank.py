"""The rows LightGBM learns from, when it stops, and what it ranks."""

import numpy as np
import pytest

from nest_model.next_set import lambdarank
from nest_model.next_set.baskets import Baskets
from nest_model.next_set.frequent import Everybody
from nest_model.next_set.labels import label_blocks, label_questions
from nest_model.next_set.lambdarank import (
    CandidateProducts,
    CandidateRows,
    LightgbmRecommender,
    fit,
)
from nest_model.next_set.lambdarank_options import LightgbmOptions
from nest_model.next_set.metrics import score_rankings
from nest_model.next_set.personal import FEATURES
from nest_model.next_set.questions import Questions
from nest_model.next_set.ranking import NO_PRODUCT, K
from nest_model.training.telemetry import NullTelemetry
from tests.support.factories.histories import (
    baskets_of,
    histories_of,
    no_test_users,
    questions_of,
    random_shop,
)

PRODUCTS = range(100, 140)
SMALL = {"min_leaf": 5, "leaves": 4}
STAPLES = 3


def staple_shop(users: int, first: int = 1) -> dict[int, list[list[int]]]:
    """Return users whose every basket holds their own three staples and two products of the moment."""
    rng = np.random.default_rng(first)
    shop = {}
    for user in range(first, first + users):
        own = rng.choice(PRODUCTS, size=len(PRODUCTS), replace=False)
        staples, others = own[:STAPLES], own[STAPLES:]
        shop[user] = [
            [*staples.tolist(), *rng.choice(others, size=2, replace=False).tolist()] for _ in range(6)
        ]
    return shop


def staple_questions(users: int, first: int) -> Questions:
    shop = staple_shop(users, first)
    baskets = baskets_of({user: each[:-1] for user, each in shop.items()}, product_id=PRODUCTS)
    return questions_of(baskets, {user: each[-1] for user, each in shop.items()})


def questions_before(training: Baskets, back: int) -> Questions:
    """Return the training users' last basket but `back` as questions."""
    *_, block = label_blocks(training, back + 1)
    return label_questions(no_test_users(training), *block)


def test_rows_are_own_and_popular_products_and_hits_those_of_the_label() -> None:
    shop = random_shop(np.random.default_rng(1), users=15)
    training = baskets_of(shop, product_id=range(100, 115))
    options = LightgbmOptions(explore=3)
    candidates = CandidateProducts.before_labels(no_test_users(training), options)
    questions = questions_before(training, 0)
    rows = CandidateRows.of(questions, candidates)
    earlier = [basket for baskets in shop.values() for basket in baskets[:-1]]
    counts = {product: sum(product in basket for basket in earlier) for product in range(100, 115)}
    popular = sorted(counts, key=lambda product: (-counts[product], product))[:3]
    users = [user for user, baskets in shop.items() if len(baskets) > 1]
    assert questions.subject_id.tolist() == users
    for place, user in enumerate(users):
        own = {product for basket in shop[user][:-1] for product in basket}
        is_users = rows.user == place
        assert set(100 + rows.item[is_users]) == own | set(popular)
        assert is_users.sum() == len(own | set(popular))
        hits = set(100 + rows.item[is_users & rows.is_hit])
        assert hits == set(shop[user][-1]) & (own | set(popular))


@pytest.mark.parametrize("back", [0, 1])
def test_rows_do_not_change_with_the_label_and_what_follows(back: int) -> None:
    shop = random_shop(np.random.default_rng(2), users=15)
    other_shop = {
        user: [
            *baskets[: -1 - back],
            *([100 + (p + 4) % 15 for p in set(basket)] for basket in baskets[-1 - back :]),
        ]
        for user, baskets in shop.items()
    }
    options = LightgbmOptions(explore=3, label_positions=2)
    tables = []
    for version in (shop, other_shop):
        data = no_test_users(baskets_of(version, product_id=range(100, 115)))
        rows = CandidateRows.of(
            questions_before(data.training, back), CandidateProducts.before_labels(data, options)
        )
        tables.append((rows.user, rows.item, rows.features))
    for before, after in zip(*tables, strict=True):
        np.testing.assert_array_equal(before, after)
    assert tables[0][2][:, FEATURES.index("count")].any()


def test_long_queries_are_cut_to_their_hits_and_popular_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lambdarank, "MOST_ROWS_OF_QUERY", 3)
    user = np.repeat([0, 1], [5, 2])
    is_hit = np.array([0, 0, 0, 0, 1, 1, 0], dtype=bool)
    rows = CandidateRows(user, np.arange(7), np.zeros((7, 1), dtype=np.float32), is_hit)
    assert rows.fit_for_learning(is_ranked=True).tolist() == [0, 1, 4, 5, 6]


def test_queries_without_a_hit_teach_a_classifier_but_no_ranker() -> None:
    is_hit = np.array([0, 0, 0, 1], dtype=bool)
    rows = CandidateRows(np.array([0, 0, 1, 1]), np.arange(4), np.zeros((4, 1), dtype=np.float32), is_hit)
    assert rows.fit_for_learning(is_ranked=True).tolist() == [2, 3]
    assert rows.fit_for_learning(is_ranked=False).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("objective", ["lambdarank", "rank_xendcg", "binary"])
def test_staples_of_every_basket_lead_the_list(objective: str) -> None:
    data = no_test_users(baskets_of(staple_shop(60), product_id=PRODUCTS))
    options = LightgbmOptions(objective=objective, explore=10, label_positions=2, trees=20, **SMALL)
    questions = staple_questions(20, first=1000)
    recommender = fit(data, None, options, 0, NullTelemetry())
    ranking = recommender.rank(questions.histories, 8)
    shop = staple_shop(20, first=1000)
    for user, leading in zip(shop, ranking.product_id[:, :STAPLES], strict=True):
        assert set(leading) == set(shop[user][0][:STAPLES])
    assert (ranking.product_id != NO_PRODUCT).all()
    ranking.refuse_invalid("lightgbm")


def test_number_of_trees_is_the_best_by_our_scorer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lambdarank, "PATIENCE_TREES", 15)
    data = no_test_users(baskets_of(staple_shop(50), product_id=PRODUCTS))
    validation = staple_questions(25, first=2000)
    recommender = fit(data, validation, LightgbmOptions(explore=40, **SMALL), 0, NullTelemetry())
    assert isinstance(recommender, LightgbmRecommender)
    best_trees = recommender.trees
    values = {}
    for trees in range(5, min(recommender.booster.current_iteration(), best_trees + 15) + 1, 5):
        recommender.trees = trees
        ranking = recommender.rank(validation.histories, K)
        values[trees] = score_rankings(ranking, validation, K).values["ndcg"].mean()
    assert best_trees == max(values, key=lambda trees: (round(values[trees], 12), -trees))


def test_block_size_and_a_second_fit_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    data = no_test_users(baskets_of(staple_shop(40), product_id=PRODUCTS))
    options = LightgbmOptions(explore=5, trees=10, columns=0.5, **SMALL)
    histories = staple_questions(9, first=3000).histories
    first = fit(data, None, options, 4, NullTelemetry()).rank(histories, K)
    monkeypatch.setattr(lambdarank, "USERS_AT_A_TIME", 2)
    second = fit(data, None, options, 4, NullTelemetry()).rank(histories, K)
    np.testing.assert_array_equal(first.product_id, second.product_id)
    np.testing.assert_array_equal(first.scores, second.scores)


def test_shop_without_a_label_lists_the_most_popular() -> None:
    training = baskets_of({1: [[5, 6]], 2: [[6]]})
    recommender = fit(no_test_users(training), None, LightgbmOptions(), 0, NullTelemetry())
    assert isinstance(recommender, Everybody)
    assert recommender.rank(histories_of(training), 2).product_id.tolist() == [[6, 5], [6, 5]]
