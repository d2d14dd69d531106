"""Counting systems: rules for equal counts by hand, filled lists, and decay and blend against a loop."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nest_model.next_set.frequent import Tie, fill
from nest_model.next_set.questions import Shop
from nest_model.next_set.ranking import NO_PRODUCT, Ranking
from nest_model.next_set.system import Tools, load_system
from nest_model.training.telemetry import NullTelemetry
from tests.support.factories.shops import Shopper, random_shoppers, write_shop

A, B, C, D, E = 1, 2, 3, 4, 5


def ranking_of(system: str, shop: Shop, k: int, **options: Any) -> Ranking:
    kind = load_system(system)
    tools = Tools(NullTelemetry(), lambda: pytest.fail("counting needs no device"), Path("nowhere"))
    return kind(kind.Options(**options), tools).fit(shop.learning_data, None, 0).rank(shop.test.histories, k)


def lists(ranking: Ranking) -> list[list[int]]:
    return [[int(product) for product in row if product != NO_PRODUCT] for row in ranking.product_id]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """Return a shop that likes D, then E, C, B, A; its test user bought B twice and the rest once."""
    favourites = [[D], [D, E], [D, E], [D, E, C], [D, E, C], [D, E, C, B], [D, E, C, B, A]]
    shoppers = {
        1: Shopper("train", favourites),
        2: Shopper("test", [[C, B], [D, A], [B]], hidden_products=[E]),
    }
    return write_shop(tmp_path, shoppers).read("held_out")


@pytest.mark.parametrize(
    ("tie", "expected"),
    [
        ("popular", [B, D, C, A]),  # D is liked most, A least
        ("recent", [B, D, A, C]),  # D and A were bought after C; of these two, D is liked more
        ("first_seen", [B, C, D, A]),  # C first; D went into the cart before A
    ],
)
def test_equal_counts_stand_by_the_rule(tie: Tie, expected: list[int], shop: Shop):
    ranking = ranking_of("p_topfreq", shop, 10, tie=tie)
    assert lists(ranking) == [expected]
    assert ranking.scores[0, :4].tolist() == [2, 1, 1, 1]


def test_everybody_gets_what_most_training_baskets_hold(shop: Shop):
    ranking = ranking_of("g_topfreq", shop, 3)
    assert lists(ranking) == [[D, E, C]]
    assert ranking.scores.tolist() == [[7, 6, 4]]
    assert lists(ranking_of("g_topfreq", shop, 10)) == [[D, E, C, B, A]]


def test_own_products_come_first_and_everybodys_fill_the_rest(shop: Shop):
    ranking = ranking_of("gp_topfreq", shop, 10, tie="popular")
    assert lists(ranking) == [[B, D, C, A, E]]
    assert ranking.scores[0, :5].tolist() == [2, 1, 1, 1, -1]


def test_full_list_is_not_filled(shop: Shop):
    assert lists(ranking_of("gp_topfreq", shop, 2, tie="popular")) == [[B, D]]


def test_filled_places_hold_new_products_below_every_score():
    nothing = NO_PRODUCT
    ranking = Ranking(
        np.array([[7, 5, nothing, nothing], [nothing] * 4, [1, 2, 3, 4]]),
        np.array([[0.5, -3, np.nan, np.nan], [np.nan] * 4, [4, 3, 2, 1]], dtype=np.float32),
    )
    filler = np.tile([5, 8, 7, 6, 9], (3, 1))
    full_lists = fill(ranking, Ranking(filler, np.zeros((3, 5), dtype=np.float32)))
    assert full_lists.product_id.tolist() == [[7, 5, 8, 6], [5, 8, 7, 6], [1, 2, 3, 4]]
    assert full_lists.scores.tolist() == [[0.5, -3, -4, -5], [-1, -2, -3, -4], [4, 3, 2, 1]]
    assert ranking.product_id[0].tolist() == [7, 5, nothing, nothing]
    full_lists.refuse_invalid("filled")


def naive_scores(shop: Shop, decay: float) -> list[dict[int, float]]:
    """Return each test user's decayed counts, product by product."""
    baskets, users = shop.test.histories.baskets, []
    for user in range(len(baskets)):
        counts: dict[int, float] = defaultdict(float)
        numbers = range(*baskets.basket_offsets[user : user + 2])
        for number in numbers:
            for item in baskets.items[slice(*baskets.item_offsets[number : number + 2])]:
                counts[int(baskets.product_id[item])] += decay ** (numbers[-1] - number)
        users.append(counts)
    return users


def in_order(scores: dict[int, float], shop: Shop, k: int) -> list[int]:
    popularity = dict(
        zip(shop.learning_data.training.product_id.tolist(), shop.learning_data.popularity(), strict=True)
    )
    products = sorted(scores, key=lambda product: (-round(scores[product], 9), -popularity[product], product))
    return products[:k]


@pytest.mark.parametrize("decay", [0.5, 0.9, 1.0])
def test_decayed_counts_are_those_of_a_loop(decay: float, tmp_path: Path):
    shop = write_shop(tmp_path, random_shoppers(1)).read("held_out")
    ranking = ranking_of("decayed", shop, 8, decay=decay, tie="popular")
    assert lists(ranking) == [in_order(scores, shop, 8) for scores in naive_scores(shop, decay)]


@pytest.mark.parametrize("unit", ["share", "count"])
@pytest.mark.parametrize("own", [0.0, 0.3, 0.9, 1.0])
def test_blend_is_that_of_a_loop(own: float, unit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("nest_model.next_set.systems.blend._USERS_AT_A_TIME", 3)
    shop = write_shop(tmp_path, random_shoppers(2)).read("held_out")
    ranking = ranking_of("blend", shop, 12, decay=0.8, own=own, unit=unit)
    shares = shop.learning_data.popularity() / len(shop.learning_data.training.days)
    expected = []
    for scores, length in zip(naive_scores(shop, 0.8), shop.test.histories.baskets.lengths, strict=True):
        whole = sum(0.8**age for age in range(length)) if unit == "share" else 1
        scores_of_blend = {
            int(product): own * scores.get(int(product), 0) / whole + (1 - own) * share
            for product, share in zip(shop.learning_data.training.product_id, shares, strict=True)
            if share > 0 or int(product) in scores
        }
        expected.append(in_order(scores_of_blend, shop, 12))
    assert lists(ranking) == expected


def test_nothing_of_test_users_counts_as_popular(tmp_path: Path):
    shoppers = {
        1: Shopper("train", [[A], [A]]),
        2: Shopper("test", [[B]] * 9, hidden_products=[A]),
        3: Shopper("val", [[B]] * 9),
    }
    shop = write_shop(tmp_path, shoppers).read("held_out")
    assert lists(ranking_of("g_topfreq", shop, 5)) == [[A]]


def test_all_visible_histories_count_as_popular_under_the_published_protocol(tmp_path: Path):
    shoppers = {1: Shopper("train", [[A], [A], [C]]), 2: Shopper("test", [[B]] * 9, hidden_products=[A])}
    shop = write_shop(tmp_path, shoppers).read("held_out", protocol="published")
    ranking = ranking_of("g_topfreq", shop, 5)
    assert (lists(ranking), ranking.scores[0, :2].tolist()) == ([[B, A]], [9, 2])
