"""The search for options: equally many points, the defaults first, fixed options fixed, and a resumed search."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from nest_model.next_set.questions import Histories, LearningData, Questions, Shop
from nest_model.next_set.ranking import NO_PRODUCT, Ranking
from nest_model.next_set.system import NextBasketOptions, NextBasketSystem, Recommender, Tools
from nest_model.next_set.tuning import Trial, best, points, tune
from nest_model.training.telemetry import Telemetry
from schemas.errors import NestError
from tests.support.factories.shops import Shopper, write_shop


class Choice(NextBasketOptions):
    product: int = 1
    score: float = 0.0
    mark: str = "a"


class ListsOneProduct(Recommender):
    def __init__(self, options: Choice) -> None:
        self.options, self.nameable = options, np.array([1, 2, 3])

    def rank(self, histories: Histories, k: int) -> Ranking:
        ids = np.full((len(histories), k), NO_PRODUCT)
        ids[:, 0] = self.options.product
        return Ranking(ids, np.where(ids == NO_PRODUCT, np.nan, self.options.score).astype(np.float32))


class OneProduct(NextBasketSystem):
    title = "One product"
    about = "Recommends one product to everybody."
    Options = Choice
    search: ClassVar = {"product": (1, 2, 3), "mark": ("a", "b", "c", "d")}
    fits: ClassVar[list[dict[str, Any]]] = []

    def fit(self, data: LearningData, validation: Questions | None, seed: int) -> ListsOneProduct:
        self.fits.append(self.options.model_dump())
        return ListsOneProduct(self.options)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """Return a shop in which twelve validation users buy 2 next."""
    users = {user: Shopper("val", [[1], [2]]) for user in range(10, 22)}
    return write_shop(
        tmp_path, users | {1: Shopper("train", [[1, 2, 3]]), 2: Shopper("test", [[1], [2]])}
    ).read()


def search(
    shop: Shop,
    folder: Path,
    earlier_trials: list[Trial],
    saved_trials: list[list[Trial]],
    fixed_options: dict[str, Any] | None = None,
) -> list[Trial]:
    tools = Tools(Telemetry(folder), lambda: pytest.fail("no device"), folder)
    assert shop.validation is not None
    OneProduct.fits.clear()
    return tune(
        OneProduct,
        fixed_options or {},
        data=shop.learning_data,
        validation=shop.validation,
        tools=tools,
        count=6,
        seed=3,
        earlier_trials=earlier_trials,
        save=lambda trials: saved_trials.append([*trials]),
    )


def test_first_point_is_the_defaults_and_none_repeats():
    search_points = points(OneProduct, {}, 6, 3)
    assert search_points[0] == {"product": 1, "score": 0.0, "mark": "a"}
    assert len(search_points) == 6
    assert len({tuple(point.values()) for point in search_points}) == 6
    assert search_points != points(OneProduct, {}, 6, 4)
    assert search_points == points(OneProduct, {}, 6, 3)


@pytest.mark.parametrize(("count", "expected"), [(1, 1), (5, 5), (12, 12), (50, 12)])
def test_every_combination_is_tried_if_there_are_no_more_than_points(count: int, expected: int):
    assert len(points(OneProduct, {}, count, 0)) == expected


def test_fixed_option_is_in_every_point_and_not_varied():
    search_points = points(OneProduct, {"product": 7}, 50, 0)
    assert {point["product"] for point in search_points} == {7}
    assert next(point["mark"] for point in search_points) == "a"
    assert len(search_points) == 4
    assert points(OneProduct, {"product": 7, "mark": "z"}, 50, 0) == [
        {"product": 7, "score": 0.0, "mark": "z"}
    ]


def test_best_trial_is_the_highest_ndcg_and_the_earliest_of_equals(shop: Shop, tmp_path: Path):
    saved_trials: list[list[Trial]] = []
    trials = search(shop, tmp_path, [], saved_trials)
    assert [trial.ndcg for trial in trials] == [float(trial.options["product"] == 2) for trial in trials]
    assert best(trials) == next(trial for trial in trials if trial.options["product"] == 2)
    assert [len(each) for each in saved_trials] == [1, 2, 3, 4, 5, 6]
    assert best([trials[0], trials[0].model_copy(update={"cpu_seconds": 99.0})]) == trials[0]


def test_resumed_search_fits_only_what_is_left(shop: Shop, tmp_path: Path):
    whole = search(shop, tmp_path / "a", [], [])
    rest = search(shop, tmp_path / "b", whole[:4], [])
    assert len(OneProduct.fits) == 2
    without_cost = [
        [trial.model_dump(exclude={"cpu_seconds"}) for trial in trials] for trials in (whole, rest)
    ]
    assert without_cost[0] == without_cost[1]


def test_score_that_is_not_finite_is_refused(shop: Shop, tmp_path: Path):
    with pytest.raises(NestError, match="One product: 12 of 12 lists rank a score that is not finite"):
        search(shop, tmp_path, [], [], {"score": float("nan")})


def test_trials_of_few_validation_users_are_not_logged(shop: Shop, tmp_path: Path):
    search(shop, tmp_path / "many", [], [])
    assert shop.validation is not None
    few = Shop(shop.learning_data, shop.validation.take(np.arange(10)), shop.test)
    search(few, tmp_path / "few", [], [])
    assert "ndcg" in (tmp_path / "many" / "metrics.jsonl").read_text()
    lines = tmp_path / "few" / "metrics.jsonl"
    assert not lines.exists() or "ndcg" not in lines.read_text()
