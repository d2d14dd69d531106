"""What holds for every system that recommends next baskets, whatever it learns: a new module is tested by being there.

Where a system would need minutes, options of CHEAP make it smaller; they change nothing that is tested here.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nest_model.__main__ import main
from nest_model.next_set.metrics import score_rankings
from nest_model.next_set.questions import Shop
from nest_model.next_set.ranking import LISTED, NO_PRODUCT, Ranking
from nest_model.next_set.run_state import State
from nest_model.next_set.system import Recommender, Tools, load_system, names
from nest_model.recipe import Recipe
from nest_model.training.device import launch_fabric
from nest_model.training.telemetry import NullTelemetry
from schemas.tables.vocab import UNK
from tests.support.factories.baskets import FIRST, HIDDEN, PRODUCTS
from tests.support.factories.baskets import write_shop as write_shards_of_shop
from tests.support.factories.shops import ShopFiles, Shopper, Shoppers, random_shoppers, write_shop
from tests.support.factories.world import World, pretrain_small, runtime

# of any system that has an option of this name
CHEAP = {
    "epochs": 1,
    "bert_epochs": 1,
    "d_model": 16,
    "d_ff": 16,
    "heads": 2,
    "hidden": 8,
    "item_size": 8,
    "user_size": 8,
    "gaps": 4,
    "trees": 5,
    "min_leaf": 5,
}
# likewise, where a system has something to find
ENOUGH = {"epochs": 8, "rate": 1e-2, "batch_rows": 500, "batch_users": 8}
# systems that cannot tell one user from another, or not after a few steps on some dozens of users
NOT_PERSONAL = {
    "g_topfreq": "the same list for everybody",
    "bert": "learns to copy from thousands of users",
}

# systems whose short lists are filled: scores of the rest are places, which ties have already decided
FILLED = {"gp_topfreq"}

FIRST_PRODUCT = 1001
UNSEEN = 999  # bought by a test user alone; it has no token of its own
ONE_BASKET, MANY_BASKETS, SOME_UNSEEN = 31, 32, 33
SEED = 7


@cache
def shoppers() -> dict[int, Shopper]:
    """Return thirty users and three with a history of one basket, of a hundred, and of an unseen product."""
    chance = np.random.default_rng(0)
    many = [(chance.choice(PRODUCTS, 3, replace=False) + FIRST_PRODUCT).tolist() for _ in range(100)]
    return random_shoppers(11, products=PRODUCTS, first_product=FIRST_PRODUCT) | {
        ONE_BASKET: Shopper("test", [[1001, 1005]], hidden_products=[1001]),
        MANY_BASKETS: Shopper("test", many, hidden_products=[1002, 1003]),
        SOME_UNSEEN: Shopper("test", [[UNSEEN, 1004], [UNSEEN, 1001], [UNSEEN]], hidden_products=[UNSEEN]),
    }


def with_other_targets(shoppers: Shoppers) -> Shoppers:
    """Return the same histories with other last visible and hidden baskets of the test users."""
    return {
        user: replace(
            shopper,
            baskets=[*shopper.baskets[:-1], [1002]],
            hidden_products=shopper.hidden_products and [1003],
        )
        if shopper.split == "test"
        else shopper
        for user, shopper in shoppers.items()
    }


def with_other_hidden(shoppers: Shoppers) -> Shoppers:
    return {
        user: replace(each, hidden_products=each.hidden_products and [1003])
        for user, each in shoppers.items()
    }


def with_other_days(shoppers: Shoppers) -> Shoppers:
    """Return the same orders with another day of each user's last, which a training user's is a label of."""

    def days(user: int, shopper: Shopper) -> list[float]:
        *earlier, last = (day for day, _, _ in shopper.orders())
        return [*earlier, last + 20 + user % 5 * 11]

    return {user: replace(each, days=days(user, each)) for user, each in shoppers.items()}


def with_other_ids(shoppers: Shoppers, new_id: dict[int, int]) -> Shoppers:
    def with_new_ids(basket: Sequence[int] | None) -> list[int] | None:
        return basket and [new_id[product] for product in basket]

    return {
        user: replace(
            each,
            baskets=[with_new_ids(basket) for basket in each.baskets],
            hidden_products=with_new_ids(each.hidden_products),
        )
        for user, each in shoppers.items()
    }


def new_ids() -> dict[int, int]:
    ids = [UNSEEN, *range(FIRST_PRODUCT, FIRST_PRODUCT + PRODUCTS)]
    return dict(zip(ids, np.random.default_rng(5).permutation(ids).tolist(), strict=True))


class Laboratory:
    """Shops on disk, a small pretrained NEST, and systems fitted on them, each made when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shop = cache(self._shop)
        self.recommender = cache(self._recommender)
        self.backbone = cache(self._backbone)

    def files(self, form: str) -> ShopFiles:
        """Return the files of the shop: `plain`, with other targets, shuffled, or with other product ids."""
        root, plain = self.folder / form, shoppers()
        if root.exists():
            return ShopFiles(root)
        match form:
            case "shuffled":
                users = np.random.default_rng(3).permutation(list(plain)).tolist()
                return write_shop(root, plain, files=3, users=users, seed=4)
            case "other targets":
                return write_shop(root, with_other_targets(plain))
            case "other hidden":
                return write_shop(root, with_other_hidden(plain))
            case "other ids":
                return write_shop(root, with_other_ids(plain, new_ids()))
            case "planted":
                return write_shop(root, planted())
            case "other days":
                return write_shop(root, with_other_days(plain))
            case _:
                return write_shop(root, plain)

    def _shop(self, form: str, target: str, query_time: str = "given") -> Shop:
        return self.files(form).read(target, query_time=query_time)

    def _recommender(
        self, name: str, form: str = "plain", target: str = "held_out", threads: int = 1
    ) -> Recommender:
        options = options_of(name, ENOUGH) if form == "planted" else {}
        work = f"{name}-{form}-{target}-{threads}"
        return self.fit(name, self.shop(form, target), work, threads, **options)

    def fit(self, name: str, shop: Shop, work: str, threads: int = 1, **options: Any) -> Recommender:
        """Fit a system with cheap options; `work` names the folder for its own files."""
        system = load_system(name)
        backbone = self.backbone() if system.reads_backbone else (None, None)
        scratch = self.folder / "work" / work
        tools = Tools(NullTelemetry(), lambda: launch_fabric("cpu", threads=threads), scratch, *backbone)
        one = system(system.Options(**options_of(name, CHEAP) | options), tools)
        return one.fit(shop.learning_data, shop.validation, SEED)

    def ranking(self, name: str, form: str = "plain", target: str = "held_out", threads: int = 1) -> Ranking:
        histories = self.shop(form, target).test.histories
        return self.recommender(name, form, target, threads).rank(histories, LISTED)

    def _backbone(self) -> tuple[Path, Path]:
        """Pretrain a NEST for an epoch on the shop's visible orders; return its folder and its vocabulary."""
        root = self.folder / "backbone"
        tokens = {
            user: [
                [UNK if product == UNSEEN else product - FIRST_PRODUCT + FIRST for product in basket]
                for basket in shopper.baskets
            ]
            + ([HIDDEN] if shopper.hidden_products is not None else [])
            for user, shopper in shoppers().items()
        }
        split = {user: shopper.split for user, shopper in shoppers().items()}
        world = World(write_shards_of_shop(root, tokens, split))
        out = root / "model"
        # days as positions, so that a system that reads a day it may not know is found out
        pretrain_small(world, runtime(out), out, Recipe(learning_rate=1e-3, epochs=1, patience=1))
        return out, world.vocab


def planted() -> Shoppers:
    """Return sixty users who buy five staples of their own in every basket, and two things they never buy again."""
    chance = np.random.default_rng(2)
    world = {}
    for user in range(1, 61):
        products = chance.permutation(70).tolist()
        baskets = [
            sorted([*products[:5], *products[5 + 2 * number : 7 + 2 * number]]) for number in range(12)
        ]
        split = ("train", "train", "val", "test")[user % 4]
        world[user] = Shopper(split, baskets, products[:5] if split == "test" else None)
    return world


def options_of(name: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return those of the values that are options of the system."""
    fields = load_system(name).Options.model_fields
    return {key: value for key, value in values.items() if key in fields}


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    return Laboratory(tmp_path_factory.mktemp("laboratory"))


# each differs in an option or a part from one of those that the everyday suite has
NOT_EVERYDAY = {
    "bert_recanet",
    "control_no_user",
    "control_other_user",
    "control_random_table",
    "nest_copy",
    "nest_generic",
}

every_system = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in NOT_EVERYDAY else ()) for name in names()]
)


def has_same_lists(ranking: Ranking, other: Ranking, tolerance: float = 0) -> None:
    """Assert that two rankings are the same; within a tolerance, products of nearly equal score may change places."""
    np.testing.assert_allclose(ranking.scores, other.scores, rtol=tolerance, atol=tolerance)
    if not tolerance:
        np.testing.assert_array_equal(ranking.product_id, other.product_id)
        return
    for user in range(len(ranking)):
        scores = dict(zip(other.product_id[user].tolist(), other.scores[user].tolist(), strict=True))
        last = np.nanmin(ranking.scores[user], initial=np.inf)
        for product, score in zip(ranking.product_id[user].tolist(), ranking.scores[user], strict=True):
            if product != NO_PRODUCT and score > last + 2 * tolerance:
                assert scores[product] == pytest.approx(score, abs=2 * tolerance, rel=tolerance)


def tolerance_of(name: str) -> float:
    """Return 0 where scores are counted, and what float32 sums may differ by where they are learnt."""
    system = load_system(name)
    return 1e-5 if system.traits.has_random_start or system.reads_backbone else 0


@every_system
@pytest.mark.parametrize(
    ("target", "form"), [("held_out", "other hidden"), ("last_visible", "other targets")]
)
def test_other_targets_leave_the_lists_identical_to_the_bit(
    name: str, target: str, form: str, laboratory: Laboratory
):
    plain, other = (laboratory.shop(each, target).test for each in ("plain", form))
    assert not np.array_equal(plain.truth, other.truth)
    has_same_lists(laboratory.ranking(name, "plain", target), laboratory.ranking(name, form, target))


@every_system
def test_day_of_a_label_or_a_target_is_unread_where_days_are_expected(name: str, laboratory: Laboratory):
    options = {key: 1 for key in ("label_positions",) if key in load_system(name).Options.model_fields}
    lists = []
    for form in ("plain", "other days"):
        shop = laboratory.shop(form, "held_out", "expected")
        recommender = laboratory.fit(name, shop, f"{name}-{form}-expected", **options)
        lists.append(recommender.rank(shop.test.histories, LISTED))
    has_same_lists(*lists)


@every_system
def test_order_of_users_and_of_lines_changes_nothing(name: str, laboratory: Laboratory):
    assert options_of(name, CHEAP).get("tie") != "first_seen"  # whose rule is the order of lines
    has_same_lists(laboratory.ranking(name), laboratory.ranking(name, "shuffled"), tolerance_of(name))


@every_system
def test_list_of_a_user_is_the_same_in_any_company(name: str, laboratory: Laboratory):
    histories, recommender = laboratory.shop("plain", "held_out").test.histories, laboratory.recommender(name)
    whole = laboratory.ranking(name)
    parts = np.array_split(np.arange(len(histories)), 4)
    alone = Ranking.joined([recommender.rank(histories.take(part), LISTED) for part in parts])
    has_same_lists(whole, alone, tolerance_of(name))
    backwards = np.arange(len(histories))[::-1]
    reversed_users = recommender.rank(histories.take(backwards), LISTED)
    in_order = Ranking(reversed_users.product_id[backwards], reversed_users.scores[backwards])
    has_same_lists(whole, in_order, tolerance_of(name))


@every_system
def test_shorter_list_is_the_beginning_of_the_longer(name: str, laboratory: Laboratory):
    whole = laboratory.ranking(name)
    short = laboratory.recommender(name).rank(laboratory.shop("plain", "held_out").test.histories, 5)
    has_same_lists(Ranking(whole.product_id[:, :5], whole.scores[:, :5]), short, tolerance_of(name))


@every_system
def test_lists_are_valid_and_of_products_the_system_can_name(name: str, laboratory: Laboratory):
    ranking, recommender = laboratory.ranking(name), laboratory.recommender(name)
    test = laboratory.shop("plain", "held_out").test
    assert ranking.product_id.shape == ranking.scores.shape == (len(test), LISTED)
    assert (ranking.product_id.dtype, ranking.scores.dtype) == (np.int64, np.float64)
    ranking.refuse_invalid(name)
    assert {*np.unique(ranking.product_id).tolist()} <= {NO_PRODUCT, *recommender.nameable.tolist()}
    assert not np.isin(NO_PRODUCT, recommender.nameable)
    assert len(np.unique(recommender.nameable)) == len(recommender.nameable)
    scores = np.where(np.isnan(ranking.scores), -np.inf, ranking.scores)
    assert (scores[:, :-1] >= scores[:, 1:]).all()


@every_system
def test_products_of_equal_score_stand_by_popularity_and_id(name: str, laboratory: Laboratory):
    if load_system(name).Options.model_fields.keys() & {"tie"} or name in FILLED:
        pytest.skip("its option `tie` decides first: test_frequent.py")
    learning_data, ranking = laboratory.shop("plain", "held_out").learning_data, laboratory.ranking(name)
    popularity = dict(
        zip(learning_data.training.product_id.tolist(), learning_data.popularity().tolist(), strict=True)
    )
    for products, scores in zip(ranking.product_id.tolist(), ranking.scores, strict=True):
        keys = [
            (-float(score), -popularity[product], product)
            for product, score in zip(products, scores, strict=True)
            if product != NO_PRODUCT
        ]
        assert keys == sorted(keys)


@every_system
def test_short_long_and_unseen_histories_have_lists(name: str, laboratory: Laboratory):
    test = laboratory.shop("plain", "held_out").test
    ranking = laboratory.ranking(name)
    lengths = dict(zip(test.subject_id.tolist(), test.histories.baskets.lengths.tolist(), strict=True))
    assert (lengths[ONE_BASKET], lengths[MANY_BASKETS]) == (1, 100)
    training = laboratory.shop("plain", "held_out").learning_data.training
    assert UNSEEN not in training.product_id[training.items]
    for user, products in zip(test.subject_id.tolist(), ranking.product_id, strict=True):
        assert (products != NO_PRODUCT).any(), user


@every_system
def test_own_products_alone_are_listed_where_the_system_says_so(name: str, laboratory: Laboratory):
    shop = laboratory.shop("plain", "held_out")
    shares = score_rankings(laboratory.ranking(name), shop.test, LISTED).values["share_on_repeats"]
    if load_system(name).traits.ranks_only_repeats:
        np.testing.assert_array_equal(shares, 1)
    else:
        assert np.nanmin(shares) < 1


@every_system
def test_other_product_ids_change_only_ties(name: str, laboratory: Laboratory):
    system = load_system(name)
    if system.traits.has_random_start or system.reads_backbone:
        pytest.skip("each product starts from random numbers of its place, or has a token by its id")
    plain, other = laboratory.ranking(name), laboratory.ranking(name, "other ids")
    np.testing.assert_allclose(other.scores, plain.scores, rtol=1e-6)
    for ids, other_ids, scores in zip(plain.product_id, other.product_id, plain.scores, strict=True):
        above_last = scores > np.nanmin(scores) + 1e-6
        if name in FILLED:
            above_last &= scores >= 0
        expected = {new_ids()[product] for product in ids[above_last].tolist()}
        assert expected == {*other_ids[above_last].tolist()}


@every_system
def test_query_day_matters_only_where_the_system_says_so(name: str, laboratory: Laboratory):
    histories = laboratory.shop("plain", "held_out").test.histories
    if load_system(name).traits.uses_query_time:
        pytest.skip("it reads the day")
    later = replace(histories, query_days=histories.query_days + 90)
    has_same_lists(laboratory.ranking(name), laboratory.recommender(name).rank(later, LISTED))


@every_system
def test_test_histories_matter_only_where_the_system_says_so(name: str, laboratory: Laboratory):
    system, shop = load_system(name), laboratory.shop("plain", "held_out")
    if system.traits.transductive:
        pytest.skip("it learns from the visible baskets of test users")
    nobody = shop.learning_data.test_histories.take(np.array([], dtype=np.int64))
    without = replace(shop, learning_data=replace(shop.learning_data, test_histories=nobody))
    ranking = laboratory.fit(name, without, f"{name}-without").rank(shop.test.histories, LISTED)
    has_same_lists(laboratory.ranking(name), ranking)


@every_system
def test_staples_of_every_basket_are_found(name: str, laboratory: Laboratory):
    system = load_system(name)
    if name in NOT_PERSONAL or system.is_control or system.reads_backbone:
        pytest.skip(NOT_PERSONAL.get(name, "not after an epoch of pretraining"))
    test = laboratory.shop("planted", "held_out").test
    recall = score_rankings(laboratory.ranking(name, "planted"), test, 10).values["recall"]
    assert recall.mean() >= 0.9


@every_system
def test_number_of_threads_changes_nothing(name: str, laboratory: Laboratory):
    if not tolerance_of(name) and "trees" not in load_system(name).Options.model_fields:
        pytest.skip("it counts in one thread")
    has_same_lists(laboratory.ranking(name), laboratory.ranking(name, threads=2), tolerance_of(name))


class KilledError(BaseException):
    """Ends a run as a kill would, with nothing saved on the way out."""


@every_system
def test_killed_and_resumed_run_writes_the_same_bytes(
    name: str, laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    system, files = load_system(name), laboratory.files("plain")
    options = [f"--option={key}={json.dumps(value)}" for key, value in options_of(name, CHEAP).items()]
    paths = [f"--{key}={path}" for key, path in files.paths.items()]
    if system.reads_backbone:
        model, vocab = laboratory.backbone()
        paths += [f"--pretrained={model}", f"--vocab={vocab}"]

    def run(out: Path) -> None:
        flags = ["--device=cpu", "--threads=1", "--points=1", "--seeds=1,2", *options, *paths]
        assert main(["next-basket", f"--system={name}", f"--out={out}", *flags]) == 0

    run(tmp_path / "undisturbed")
    save = State.save_ranking

    def save_and_die(*arguments: Any) -> None:
        save(*arguments)
        raise KilledError

    monkeypatch.setattr(State, "save_ranking", save_and_die)
    with pytest.raises(KilledError):
        run(tmp_path / "killed")
    monkeypatch.setattr(State, "save_ranking", save)
    assert not (tmp_path / "killed" / "metrics.json").exists()
    run(tmp_path / "killed")
    for file in ("metrics.json", "trials.json", "rankings.parquet", "scores.parquet"):
        assert (tmp_path / "killed" / file).read_bytes() == (tmp_path / "undisturbed" / file).read_bytes(), (
            file
        )


@every_system
def test_options_of_a_short_demonstration_are_options_of_the_system(name: str):
    system = load_system(name)
    assert system.Options(**system.quick).model_dump().keys() >= system.quick.keys()


def test_only_systems_there_are_have_exceptions():
    assert {*NOT_PERSONAL, *FILLED} <= {*names()}
