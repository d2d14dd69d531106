"""Whose next basket is asked for, from which history, after what training, under each protocol and target."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nest_model.next_set.baskets import Baskets
from nest_model.next_set.questions import LearningData, Questions, Shop
from schemas.errors import InputError, NestError
from tests.support.factories.shops import Shopper, Shoppers, order_id, random_shoppers, write_shop

SHOPPERS = {
    1: Shopper("train", [[1, 2], [2], [3]]),
    2: Shopper("train", [[4]]),
    3: Shopper("val", [[1], [2, 3], [5]]),
    4: Shopper("test", [[1], [2], [6, 1]], hidden_products=[7, 1], days=[0, 1, 3, 10]),
    5: Shopper("test", [[8]], hidden_products=[2]),
}


def carts(baskets: Baskets) -> dict[int, list[list[int]]]:
    """Return each user's baskets as ascending product ids."""
    users = {}
    for place, user in enumerate(baskets.subject_id):
        numbers = range(*baskets.basket_offsets[place : place + 2])
        lines = [baskets.items[slice(*baskets.item_offsets[number : number + 2])] for number in numbers]
        users[int(user)] = [baskets.product_id[items].tolist() for items in lines]
    return users


def truths(questions: Questions) -> dict[int, list[int]]:
    parts = np.split(questions.truth, questions.truth_offsets[1:-1])
    return {int(user): part.tolist() for user, part in zip(questions.subject_id, parts, strict=True)}


def read(folder: Path, target: str, shoppers: Shoppers = SHOPPERS, **options) -> Shop:
    return write_shop(folder, shoppers).read(target, **options)


def test_official_last_visible(tmp_path: Path):
    shop = read(tmp_path, "last_visible")
    assert carts(shop.learning_data.training) == {1: [[1, 2], [2], [3]], 2: [[4]]}
    assert carts(shop.learning_data.test_histories) == {4: [[1], [2]]}
    assert carts(shop.learning_data.histories) == {1: [[1, 2], [2]], 2: []}
    assert shop.validation is not None
    assert carts(shop.validation.histories.baskets) == {3: [[1], [2, 3]]}
    assert truths(shop.validation) == {3: [5]}
    assert carts(shop.test.histories.baskets) == {4: [[1], [2]]}
    assert truths(shop.test) == {4: [1, 6]}
    assert shop.test.histories.query_days.tolist() == [3]
    assert shop.test.left_out == {"no_target": 0, "no_history": 1}


def test_official_held_out(tmp_path: Path):
    shop = read(tmp_path, "held_out")
    assert carts(shop.learning_data.training) == {1: [[1, 2], [2], [3]], 2: [[4]]}
    assert carts(shop.test.histories.baskets) == {4: [[1], [2], [1, 6]], 5: [[8]]}
    assert carts(shop.learning_data.test_histories) == carts(shop.test.histories.baskets)
    assert truths(shop.test) == {4: [1, 7], 5: [2]}
    assert shop.test.histories.query_days.tolist() == [10, 7]
    assert shop.test.left_out == {"no_target": 0, "no_history": 0}
    assert shop.validation is not None
    assert truths(shop.validation) == {3: [5]}


def test_published_last_visible(tmp_path: Path):
    shop = read(tmp_path, "last_visible", protocol="published")
    assert shop.validation is None
    # nobody's last order, and so nothing of the users with one order
    assert carts(shop.learning_data.training) == {1: [[1, 2], [2]], 3: [[1], [2, 3]], 4: [[1], [2]]}
    assert truths(shop.test) == {4: [1, 6]}


def test_published_held_out(tmp_path: Path):
    shop = read(tmp_path, "held_out", protocol="published")
    training = {1: [[1, 2], [2]], 3: [[1], [2, 3]], 4: [[1], [2], [1, 6]], 5: [[8]]}
    assert carts(shop.learning_data.training) == training
    assert truths(shop.test) == {4: [1, 7], 5: [2]}


def test_expected_query_day_is_the_last_day_and_the_median_gap(tmp_path: Path):
    shop = read(tmp_path, "held_out", query_time="expected")
    # gaps of user 4: 1 and 2; user 5 has none, and the median of the training users' gaps stands for it
    assert shop.test.histories.query_days.tolist() == [3 + 1.5, 0 + 7]


@pytest.mark.parametrize("seed", range(3))
def test_expected_days_are_those_of_a_loop(seed: int, tmp_path: Path):
    chance = np.random.default_rng(seed)
    shoppers = {
        user: replace(
            shopper,
            hidden_products=None,
            days=np.cumsum(chance.integers(0, 9, len(shopper.baskets))).tolist(),
        )
        for user, shopper in random_shoppers(seed).items()
    }
    shop = read(tmp_path, "last_visible", shoppers)
    baskets, training = shop.test.histories.baskets, shop.learning_data.training
    days = np.split(baskets.days, baskets.basket_offsets[1:-1])
    training_gaps = [np.diff(each) for each in np.split(training.days, training.basket_offsets[1:-1])]
    usual = np.median(np.concatenate(training_gaps))
    expected = [each[-1] + (np.median(np.diff(each)) if len(each) > 1 else usual) for each in days]
    np.testing.assert_allclose(shop.learning_data.expected_days(baskets), expected)


def test_given_query_day_says_nothing_under_expected_query_time(tmp_path: Path):
    later = SHOPPERS | {4: replace(SHOPPERS[4], days=[0, 1, 3, 25])}
    shops = [
        read(tmp_path / str(number), "held_out", shoppers, query_time="expected")
        for number, shoppers in enumerate((SHOPPERS, later))
    ]
    np.testing.assert_array_equal(*(shop.test.histories.query_days for shop in shops))


def test_users_without_target_or_history_are_counted_by_reason(tmp_path: Path):
    shoppers = SHOPPERS | {
        6: Shopper(
            "test", [[], []], hidden_products=[1]
        ),  # neither a visible target nor, for the hidden one, a history
        7: Shopper("test", [[1], [2]], hidden_products=[]),  # nothing in held_out
    }
    assert read(tmp_path / "a", "last_visible", shoppers).test.left_out == {"no_target": 1, "no_history": 1}
    shop = read(tmp_path / "b", "held_out", shoppers)
    assert shop.test.left_out == {"no_target": 1, "no_history": 1}
    assert shop.test.subject_id.tolist() == [4, 5]


def test_product_in_two_lines_of_held_out_is_one_target(tmp_path: Path):
    shop = read(tmp_path, "held_out", SHOPPERS | {5: replace(SHOPPERS[5], hidden_products=[2, 2, 1, 2])})
    assert truths(shop.test)[5] == [1, 2]


def test_no_target_widens_the_products(tmp_path: Path):
    shoppers = SHOPPERS | {
        3: replace(SHOPPERS[3], baskets=[[1], [2, 3], [50]]),
        4: replace(SHOPPERS[4], baskets=[[1], [2], [60]], hidden_products=[70]),
    }
    assert read(tmp_path / "a", "last_visible", shoppers).learning_data.training.product_id.tolist() == [
        1,
        2,
        3,
        4,
    ]
    shop = read(tmp_path / "b", "held_out", shoppers)
    assert shop.learning_data.training.product_id.tolist() == [1, 2, 3, 4, 8, 60]
    assert truths(shop.test)[4] == [70]


@pytest.mark.parametrize("protocol", ["official", "published"])
@pytest.mark.parametrize("target", ["last_visible", "held_out"])
def test_replacing_the_target_and_all_after_it_changes_nothing_a_system_sees(
    target: str, protocol: str, tmp_path: Path
):
    shoppers = random_shoppers(5)
    other_shoppers = {user: with_other_target(shopper, target) for user, shopper in shoppers.items()}
    shops = [
        read(tmp_path / str(number), target, each, protocol=protocol)
        for number, each in enumerate((shoppers, other_shoppers))
    ]
    for name in ("learning_data", "test"):
        for before, after in zip(*(arrays_of(getattr(shop, name)) for shop in shops), strict=True):
            np.testing.assert_array_equal(before, after)
    assert truths(shops[0].test) != truths(shops[1].test)


def with_other_target(shopper: Shopper, target: str) -> Shopper:
    """Return a test user whose target, and what comes after it, holds one product that nobody bought."""
    if shopper.split != "test":
        return shopper
    hidden_products = [999] if shopper.hidden_products is not None else None
    baskets = shopper.baskets if target == "held_out" else [*shopper.baskets[:-1], [998]]
    return replace(shopper, baskets=baskets, hidden_products=hidden_products)


def arrays_of(part: LearningData | Questions) -> list[np.ndarray]:
    if isinstance(part, LearningData):
        return [*vars(part.training).values(), *vars(part.test_histories).values()]
    return [*vars(part.histories.baskets).values(), part.histories.query_days]


def test_order_after_the_hidden_one_is_no_history(tmp_path: Path):
    shoppers = SHOPPERS | {4: replace(SHOPPERS[4], later=[[9]], days=[0, 1, 3, 10, 11])}
    shop = read(tmp_path, "held_out", shoppers)
    assert carts(shop.test.histories.baskets)[4] == [[1], [2], [1, 6]]
    assert 9 not in shop.learning_data.training.product_id
    assert truths(shop.test)[4] == [1, 7]


def test_questions_are_taken_in_the_order_given(tmp_path: Path):
    test = read(tmp_path, "held_out").test
    part = test.take(np.array([1, 0]))
    assert truths(part) == {5: [2], 4: [1, 7]}
    assert part.subject_id.tolist() == [5, 4]
    assert part.histories.query_days.tolist() == [7, 10]
    assert truths(test.take(np.array([1]))) == {5: [2]}


@pytest.mark.parametrize("validation", [None, Shopper("val", [[1]]), Shopper("val", [[]])])
def test_no_validation_user_who_can_be_asked_is_no_validation(validation: Shopper | None, tmp_path: Path):
    shoppers = {user: shopper for user, shopper in SHOPPERS.items() if user != 3}
    shoppers |= {3: validation} if validation else {}
    assert read(tmp_path, "last_visible", shoppers).validation is None


def test_nobody_with_a_history_is_an_error_that_counts_reasons(tmp_path: Path):
    shoppers = {1: SHOPPERS[1], 5: SHOPPERS[5], 6: Shopper("test", [[]], hidden_products=[1])}
    with pytest.raises(
        NestError,
        match=r"no test user has .*without products to predict: < 11, without an earlier basket: < 11",
    ):
        read(tmp_path, "last_visible", shoppers)


def test_nobody_to_learn_from_is_an_error(tmp_path: Path):
    with pytest.raises(NestError, match="no user to learn from"):
        read(tmp_path, "last_visible", {4: SHOPPERS[4]})


def test_held_out_that_names_another_order_is_refused(tmp_path: Path):
    shop = write_shop(tmp_path, SHOPPERS)
    with (tmp_path / "held_out.csv").open("a") as stream:
        stream.write(f"{order_id(4, 0)},1\n123456,1\n")
    with pytest.raises(InputError, match="held_out: 2 of 5 lines name an order that is not hidden") as error:
        shop.read("held_out")
    assert "123456" not in str(error.value)


def test_missing_held_out_is_refused(tmp_path: Path):
    shop = write_shop(tmp_path, SHOPPERS)
    (tmp_path / "held_out.csv").unlink()
    with pytest.raises(InputError, match="held_out: no such file"):
        shop.read("held_out")
    with pytest.raises(NestError, match="needs --raw"):
        shop.read("held_out", raw=None)


def test_held_out_is_not_read_for_the_visible_target(tmp_path: Path):
    shop = write_shop(tmp_path, SHOPPERS)
    (tmp_path / "held_out.csv").write_bytes(b"\xff nothing that could be read")
    assert len(shop.read("last_visible", raw=tmp_path).test) == 1


def test_users_that_subjects_lack_are_refused(tmp_path: Path):
    shop = write_shop(tmp_path, SHOPPERS)
    fewer = write_shop(tmp_path / "fewer", {user: SHOPPERS[user] for user in (1, 4)})
    (tmp_path / "subjects.parquet").write_bytes((fewer.paths["subjects"]).read_bytes())
    with pytest.raises(NestError, match="lacks the users of 6 orders"):
        shop.read("last_visible")
