"""TIFUKNN against hand-worked vectors, a dense reference and decayed counts."""

from dataclasses import replace

import numpy as np
import pytest

from nest_model.next_set import tifuknn
from nest_model.next_set.baskets import Baskets
from nest_model.next_set.frequent import OwnCounts
from nest_model.next_set.ranking import NO_PRODUCT, Ranking
from nest_model.next_set.tifuknn import Neighbours, user_vectors
from nest_model.next_set.tifuknn_options import TifuknnOptions
from nest_model.training.telemetry import NullTelemetry
from tests.support.factories.histories import baskets_of, histories_of, no_test_users, random_shop

K = 5


def rank(training: Baskets, queries: Baskets, **options: object) -> Ranking:
    recommender = Neighbours(no_test_users(training), TifuknnOptions(**options), NullTelemetry())
    return recommender.rank(histories_of(queries), K)


def split_shop(seed: int = 0, users: int = 40, longest: int = 9) -> tuple[Baskets, Baskets]:
    """Return training and query users of one shop; some queries are training users too."""
    shop = random_shop(np.random.default_rng(seed), users=users, longest=longest)
    everybody = baskets_of(shop, product_id=range(100, 116))
    return everybody.take(np.arange(0, 30)), everybody.take(np.arange(25, users))


def dense_vector(user: list[np.ndarray], products: int, options: TifuknnOptions) -> np.ndarray:
    """Return the vector of one user's baskets of places, by the definition."""
    n, m = len(user), options.m
    vectors = []
    for place, basket in enumerate(user):
        vector = np.zeros(products)
        vector[basket] = options.r_b ** (n - 1 - place)
        vectors.append(vector)
    sizes = [1] * n if n < m else [n // m] * (m - n % m) + [n // m + 1] * (n % m)
    groups, start = [], 0
    for size in sizes:
        groups.append(np.mean(vectors[start : start + size], axis=0))
        start += size
    return sum(options.r_g ** (m - 1 - g) * group for g, group in enumerate(groups)) / len(groups)


def dense_vectors(baskets: Baskets, options: TifuknnOptions) -> np.ndarray:
    lines = np.split(baskets.items, baskets.item_offsets[1:-1])
    users = [
        lines[start:end]
        for start, end in zip(baskets.basket_offsets[:-1], baskets.basket_offsets[1:], strict=True)
    ]
    return np.array([dense_vector(user, baskets.products, options) for user in users])


def dense_scores(training: Baskets, queries: Baskets, options: TifuknnOptions) -> np.ndarray:
    pool, own = dense_vectors(training, options), dense_vectors(queries, options)
    scores = []
    for subject, vector in zip(queries.subject_id, own, strict=True):
        distance = np.linalg.norm(pool - vector, axis=1).round(9)
        by_distance = np.argsort(distance, kind="stable")
        nearest = by_distance[training.subject_id[by_distance] != subject][: options.k]
        scores.append(options.alpha * vector + (1 - options.alpha) * pool[nearest].mean(axis=0))
    return np.array(scores)


def test_vector_is_the_one_worked_by_hand() -> None:
    baskets = baskets_of({1: [[1], [1, 2], [3]]})
    options = TifuknnOptions(m=2, r_b=0.5, r_g=0.5)
    np.testing.assert_allclose(user_vectors(baskets, options).toarray(), [[0.1875, 0.125, 0.25]])


def test_vector_of_fewer_baskets_than_groups_keeps_the_exponents_of_all_groups() -> None:
    options = TifuknnOptions(m=4, r_b=1, r_g=0.5)
    vector = user_vectors(baskets_of({1: [[1], [2]]}), options).toarray()
    np.testing.assert_allclose(vector, [[0.5**3 / 2, 0.5**2 / 2]])


def test_vector_decayed_per_group_starts_anew_in_each() -> None:
    options = TifuknnOptions(m=2, r_b=0.5, r_g=1, decay="group")
    vector = user_vectors(baskets_of({1: [[1], [2], [3], [4], [5]]}), options).toarray()
    np.testing.assert_allclose(vector, [[0.125, 0.25, 0.25 / 6, 0.5 / 6, 1 / 6]])


@pytest.mark.parametrize("m", [1, 2, 3, 7])
@pytest.mark.parametrize("k", [1, 4, 29, 500])
def test_every_list_is_optimal_under_the_dense_reference(m: int, k: int) -> None:
    training, queries = split_shop()
    options = TifuknnOptions(k=k, r_b=0.8, r_g=0.6, alpha=0.4, m=m)
    scores = dense_scores(training, queries, options)
    ranking = rank(training, queries, **options.model_dump())
    best = -np.sort(-scores, axis=1)[:, :K]
    item = np.searchsorted(training.product_id, ranking.product_id)
    is_listed = ranking.product_id != NO_PRODUCT
    np.testing.assert_array_equal(is_listed, best > 0)
    of_listed = np.take_along_axis(scores, np.minimum(item, scores.shape[1] - 1), axis=1)
    np.testing.assert_allclose(of_listed[is_listed], best[is_listed], rtol=1e-12)
    np.testing.assert_allclose(ranking.scores[is_listed], best[is_listed], rtol=1e-6)


@pytest.mark.parametrize("decay", [0.6, 1.0])
def test_user_alone_in_one_group_is_decayed_counts(decay: float) -> None:
    training, queries = split_shop(3)
    ranking = rank(training, queries, alpha=1, m=1, r_b=decay)
    counts = OwnCounts(no_test_users(training), decay=decay, tie="popular").rank(histories_of(queries), K)
    np.testing.assert_array_equal(ranking.product_id, counts.product_id)


def test_a_training_user_is_not_its_own_neighbour() -> None:
    training = baskets_of({1: [[1], [1]], 2: [[2], [2]], 3: [[2]]})
    query = training.take(np.array([0]))
    assert rank(training, query, k=1, alpha=0, r_b=1, m=1).product_id[0].tolist() == [2, *[NO_PRODUCT] * 4]
    stranger = replace(query, subject_id=np.array([9]))
    assert rank(training, stranger, k=1, alpha=0, r_b=1, m=1).product_id[0, 0] == 1


def test_an_only_training_user_has_no_neighbours() -> None:
    training = baskets_of({1: [[1, 2]]})
    assert rank(training, training, alpha=0.5).product_id[0, :3].tolist() == [1, 2, NO_PRODUCT]


def test_equally_distant_neighbours_are_those_of_the_lower_ids() -> None:
    training = baskets_of({4: [[14]], 5: [[15]], 6: [[16]], 9: [[17]]})
    query = training.take(np.array([3]))
    products = rank(training, query, k=2, alpha=0.1).product_id[0]
    assert set(products[products != NO_PRODUCT]) == {14, 15, 17}


@pytest.mark.parametrize("users", [1, 4])
def test_block_size_changes_nothing(users: int, monkeypatch: pytest.MonkeyPatch) -> None:
    training, queries = split_shop(5)
    whole = rank(training, queries, k=3, alpha=0.3)
    monkeypatch.setattr(tifuknn, "USERS_AT_A_TIME", users)
    monkeypatch.setattr(tifuknn, "TRAINING_USERS_AT_A_TIME", users)
    blocks = rank(training, queries, k=3, alpha=0.3)
    np.testing.assert_array_equal(whole.product_id, blocks.product_id)
    np.testing.assert_array_equal(whole.scores, blocks.scores)


def test_other_product_ids_change_neither_neighbours_nor_scores() -> None:
    training, queries = split_shop(6)
    shift = np.random.default_rng(0).permutation(training.products)

    def renamed(baskets: Baskets) -> Baskets:
        items = shift[baskets.items]
        order = np.lexsort((items, baskets.basket_of_line))
        return replace(baskets, items=items[order].astype(np.int32))

    before = rank(training, queries, k=3, alpha=0.3)
    after = rank(renamed(training), renamed(queries), k=3, alpha=0.3)
    np.testing.assert_array_equal(before.scores, after.scores)


def test_products_no_training_user_bought_can_be_listed() -> None:
    everybody = baskets_of({1: [[1]], 2: [[7], [7]]})
    training, query = everybody.take(np.array([0])), everybody.take(np.array([1]))
    assert rank(training, query).product_id[0, :2].tolist() == [7, 1]


def test_users_whose_distances_differ_by_rounding_alone_are_equally_near() -> None:
    rng = np.random.default_rng(8)
    shop: dict[int, list[list[int]]] = {99: [[999]]}
    for user in range(20):  # the same history in products of their own, whose squares add up in another order
        own = 10 * user + rng.permutation(7)
        shop[user] = [own[: size + 1].tolist() for size in (6, 4, 2, 1, 3, 0)]
    baskets = baskets_of(shop)
    training, query = baskets.take(np.arange(20)), baskets.take(np.array([20]))
    for neighbours in range(1, 6):
        recommender = Neighbours(
            no_test_users(training), TifuknnOptions(k=neighbours, alpha=0), NullTelemetry()
        )
        products = recommender.rank(histories_of(query), 200).product_id[0]
        assert set(products[products != NO_PRODUCT] // 10) == set(range(neighbours))


def test_scores_that_differ_by_rounding_alone_are_ordered_by_id() -> None:
    histories = {1: [[5], [9], [6]], 2: [[9], [5, 6], [9]], 3: [[6], [9], [5]], 4: [[9]]}
    training = baskets_of(histories)
    query = training.take(np.array([3]))
    for decay in np.arange(0.5, 1.0, 0.01):
        ranking = rank(training, query, k=3, alpha=0, m=1, r_b=decay)
        assert ranking.product_id[0, 1:3].tolist() == [5, 6] or ranking.product_id[0, :2].tolist() == [5, 6]
