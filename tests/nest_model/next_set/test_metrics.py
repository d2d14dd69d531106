"""The scorer of ranked baskets: cases worked by hand, its identities, and scikit-learn as an oracle."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from nest_model.data.seqsets import offsets_of
from nest_model.next_set.baskets import Baskets
from nest_model.next_set.metrics import METRICS, UserScores, best_gains, oracle, score_rankings, unnamed_share
from nest_model.next_set.questions import Histories, Questions
from nest_model.next_set.ranking import NO_PRODUCT, Ranking

Lists = Sequence[Sequence[int]]
PRODUCTS = 40


def questions_of(truths: Lists, histories: Lists) -> Questions:
    """Return a question for each user, whose history is one basket."""
    lines = [sorted(history) for history in histories]
    product_id = np.arange(PRODUCTS)
    baskets = Baskets(
        subject_id=np.arange(len(truths)),
        basket_offsets=np.arange(len(truths) + 1),
        item_offsets=offsets_of(np.array([len(line) for line in lines])),
        items=np.array([product for line in lines for product in line], dtype=np.int32),
        cart_places=np.array([place for line in lines for place in range(len(line))], dtype=np.int16),
        days=np.zeros(len(truths), dtype=np.float32),
        product_id=product_id,
    )
    truth = [product for products in truths for product in sorted(products)]
    sizes = np.array([len(products) for products in truths])
    return Questions(Histories(baskets, np.zeros(len(truths))), offsets_of(sizes), np.array(truth), {})


def ranking_of(lists: Lists, k: int) -> Ranking:
    ids = np.array([[*products, *[NO_PRODUCT] * (k - len(products))] for products in lists])
    return Ranking(ids, np.where(ids == NO_PRODUCT, np.nan, 0.0).astype(np.float32))


def scores_of(
    truth: Sequence[int], guesses: Sequence[int], history: Sequence[int] = (39,), k: int = 10
) -> dict:
    questions = questions_of([truth], [history])
    return values_of(score_rankings(ranking_of([guesses], max(k, len(guesses))), questions, k))


def values_of(scores: UserScores, user: int = 0) -> dict[str, float]:
    return {name: float(values[user]) for name, values in scores.values.items()}


@pytest.mark.parametrize(
    ("truth", "guesses", "expected"),
    [
        ([1, 2, 3], [1, 9, 3], {"recall": 0.6667, "ndcg": 0.7039, "ndcg_all_truth": 0.7039, "ndcg_fixed_k": 0.3301}),
        (range(20), range(10), {"recall": 0.5, "ndcg": 1, "ndcg_fixed_k": 1, "ndcg_all_truth": 0.6454}),
        (range(12), [0, 20, 21, 5], {"recall": 0.1667, "ndcg": 0.3149, "ndcg_all_truth": 0.2809}),
    ],
)  # fmt: skip
def test_cases_worked_by_hand(truth: Sequence[int], guesses: Sequence[int], expected: dict[str, float]):
    scores = scores_of(truth, guesses)
    assert {name: round(scores[name], 4) for name in expected} == expected
    assert scores["hit"] == 1


def test_parts_worked_by_hand():
    # 1 and 2 are repeats, 3 and 4 new; 7 is in the history and no target
    scores = scores_of([1, 2, 3, 4], [3, 7, 1], history=[1, 2, 7])
    ideal = best_gains(4)[4]
    assert scores == pytest.approx(
        {
            "recall": 0.5,
            "ndcg": 1.5 / ideal,
            "ndcg_all_truth": 1.5 / ideal,
            "ndcg_fixed_k": 1.5 / best_gains(10)[10],
            "hit": 1,
            "recall_repeat_part": 0.25,
            "recall_explore_part": 0.25,
            "ndcg_repeat_part": 0.5 / ideal,
            "ndcg_explore_part": 1 / ideal,
            "recall_of_repeats": 0.5,
            "recall_of_new": 0.5,
            "share_on_repeats": 2 / 3,
        }
    )


def test_metrics_a_user_does_not_have_are_nan():
    assert np.isnan(scores_of([1], [1], history=[1])["recall_of_new"])
    assert np.isnan(scores_of([1], [1], history=[2])["recall_of_repeats"])
    empty = scores_of([1], [], history=[1])
    assert np.isnan(empty["share_on_repeats"])
    assert (empty["recall"], empty["ndcg"], empty["hit"]) == (0, 0, 0)


@st.composite
def scored(draw: st.DrawFn) -> tuple[list[list[int]], list[list[int]], list[list[int]], int]:
    """Return truths, lists and histories of some users, and K; lists can be short, and longer than K."""
    users = draw(st.integers(1, 4))

    def products(least: int, most: int) -> list[list[int]]:
        some = st.lists(st.integers(0, PRODUCTS - 1), unique=True, min_size=least, max_size=most)
        return [draw(some) for _ in range(users)]

    return products(1, 25), products(0, 22), products(1, 20), draw(st.sampled_from([1, 5, 10, 20]))


@given(scored())
def test_identities_of_every_user(draws: tuple):
    truths, lists, histories, k = draws
    scores = score_rankings(ranking_of(lists, 22), questions_of(truths, histories), k)
    values = scores.values
    assert tuple(values) == METRICS
    # exactly, since a sum and a maximum of published columns must not contradict the column beside them
    np.testing.assert_array_equal(
        values["ndcg"], np.maximum(values["ndcg_all_truth"], values["ndcg_fixed_k"])
    )
    for name in ("recall", "ndcg"):
        parts = values[f"{name}_repeat_part"] + values[f"{name}_explore_part"]
        np.testing.assert_allclose(parts, values[name], atol=1e-12)
    assert scores.truths.tolist() == [len(truth) for truth in truths]
    assert scores.repeat_truths.tolist() == [len({*a} & {*b}) for a, b in zip(truths, histories, strict=True)]
    for name in METRICS:
        finite = values[name][np.isfinite(values[name])]
        assert ((finite >= 0) & (finite <= 1 + 1e-12)).all(), name


@given(scored())
def test_scores_are_those_of_a_loop(draws: tuple):
    truths, lists, histories, k = draws
    scores = score_rankings(ranking_of(lists, 22), questions_of(truths, histories), k)
    for user, (truth, products) in enumerate(zip(truths, lists, strict=True)):
        gain = sum(1 / np.log2(place + 2) for place, product in enumerate(products[:k]) if product in truth)
        best = sum(1 / np.log2(place + 2) for place in range(min(k, len(truth))))
        assert scores.values["ndcg"][user] == pytest.approx(gain / best)
        assert scores.values["recall"][user] == pytest.approx(len({*products[:k]} & {*truth}) / len(truth))


@given(scored())
def test_ndcg_is_scikit_learns(draws: tuple):
    truths, lists, histories, k = draws
    scores = score_rankings(ranking_of(lists, 22), questions_of(truths, histories), k)
    for user, (truth, products) in enumerate(zip(truths, lists, strict=True)):
        relevance, scores_of_products = np.zeros(2 * PRODUCTS), np.zeros(2 * PRODUCTS)
        relevance[truth] = 1
        scores_of_products[products] = 100 - np.arange(len(products))
        # what is not listed misses: irrelevant products stand before it
        scores_of_products[PRODUCTS:] = 10 - np.arange(PRODUCTS) / PRODUCTS
        assert scores.values["ndcg"][user] == pytest.approx(
            ndcg_score([relevance], [scores_of_products], k=k)
        )


@given(scored())
def test_appending_a_miss_changes_nothing(draws: tuple):
    truths, lists, histories, k = draws
    questions = questions_of(truths, histories)
    longer = [
        [*products, next(product for product in range(PRODUCTS, 10**6) if product not in products)]
        for products in lists
    ]
    before, after = (score_rankings(ranking_of(each, 23), questions, k).values for each in (lists, longer))
    for name in set(METRICS) - {"share_on_repeats"}:
        np.testing.assert_array_equal(before[name], after[name], err_msg=name)


@given(scored())
def test_moving_a_hit_up_never_lowers_ndcg(draws: tuple):
    truths, lists, histories, k = draws
    questions = questions_of(truths, histories)
    better_lists = [[*products] for products in lists]
    for products, truth in zip(better_lists, truths, strict=True):
        for place in range(1, len(products)):
            if products[place] in truth and products[place - 1] not in truth:
                products[place - 1], products[place] = products[place], products[place - 1]
                break
    before, after = (
        score_rankings(ranking_of(each, 22), questions, k).values for each in (lists, better_lists)
    )
    for name in ("ndcg", "ndcg_all_truth", "ndcg_fixed_k", "recall"):
        assert (after[name] >= before[name]).all(), name


@given(scored())
def test_oracles_are_the_ceilings(draws: tuple):
    truths, _, histories, k = draws
    questions = questions_of(truths, histories)
    best = score_rankings(oracle(questions, k), questions, k)
    np.testing.assert_allclose(best.values["ndcg"], 1, rtol=1e-12)
    np.testing.assert_allclose(best.values["recall"], np.minimum(k, best.truths) / best.truths)
    repeats = score_rankings(oracle(questions, k, repeats_only=True), questions, k)
    np.testing.assert_allclose(repeats.values["recall"], np.minimum(k, best.repeat_truths) / best.truths)
    np.testing.assert_array_equal(repeats.values["recall_explore_part"], 0)


def test_target_product_the_shop_does_not_know_is_a_miss_of_every_system():
    assert scores_of([1, 5_000], [1])["recall"] == 0.5
    assert unnamed_share(questions_of([[1, 5_000], [2]], [[1], [1]]), np.array([1, 3])) == pytest.approx(
        2 / 3
    )


def test_longer_lists_than_k_are_cut():
    assert scores_of([5], [1, 2, 5], k=2)["recall"] == 0
    assert scores_of([5], [1, 2, 5], k=3)["recall"] == 1
