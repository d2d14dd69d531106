"""Baskets as flat arrays: reading, choosing users and parts of histories, and independence of the files' order."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from nest_model.next_set.baskets import Baskets, read_orders
from schemas.errors import ContractError
from schemas.tables.seqset import TARGET_HIDDEN
from tests.support.factories.shops import Shopper, random_shoppers, write_shop

SHOPPERS = {
    3: Shopper("train", [[7, 5, 9], [5]]),
    8: Shopper("test", [[9], [], [5, 7], [9, 2]], hidden_products=[2]),
    20: Shopper("train", [[7]]),
}


def contents(baskets: Baskets) -> dict[int, list[tuple[float, list[int]]]]:
    """Return each user's days and products, in the order they went into the cart."""
    users: dict[int, list[tuple[float, list[int]]]] = {}
    for place, user in enumerate(baskets.subject_id):
        users[int(user)] = []
        for basket in range(*baskets.basket_offsets[place : place + 2]):
            lines = slice(*baskets.item_offsets[basket : basket + 2])
            in_cart = np.argsort(baskets.cart_places[lines])
            products = baskets.product_id[baskets.items[lines][in_cart]].tolist()
            users[int(user)].append((float(baskets.days[basket]), products))
    return users


@pytest.fixture
def baskets(tmp_path: Path) -> Baskets:
    orders = read_orders(write_shop(tmp_path, SHOPPERS).paths["baskets"])
    return orders.baskets(np.flatnonzero(orders.sizes), np.array([2, 5, 7, 9]))


def test_orders_are_read_as_written(tmp_path: Path):
    orders = read_orders(write_shop(tmp_path, SHOPPERS, files=2).paths["baskets"])
    assert orders.subject_id.tolist() == [3, 3, 8, 8, 8, 8, 8, 20]
    assert orders.encounter_id.tolist() == [3000, 3001, 8000, 8001, 8002, 8003, 8004, 20000]
    assert orders.days.tolist() == [0, 7, 0, 7, 14, 21, 28, 0]
    assert orders.flags.tolist() == [0] * 6 + [TARGET_HIDDEN, 0]
    assert orders.sizes.tolist() == [3, 1, 1, 0, 2, 2, 0, 1]
    assert orders.product_ids.tolist() == [7, 5, 9, 5, 9, 5, 7, 9, 2, 7]


def test_baskets_hold_filled_orders_in_time_order_and_products_by_place(baskets: Baskets):
    assert contents(baskets) == {
        3: [(0, [7, 5, 9]), (7, [5])],
        8: [(0, [9]), (14, [5, 7]), (21, [9, 2])],
        20: [(0, [7])],
    }
    assert baskets.items.tolist() == [1, 2, 3, 1, 3, 1, 2, 0, 3, 2]
    assert baskets.lengths.tolist() == [2, 3, 1]
    assert baskets.user_of_line.tolist() == [0] * 4 + [1] * 5 + [2]
    assert baskets.basket_of_line.tolist() == [0, 0, 0, 1, 2, 3, 3, 4, 4, 5]
    assert baskets.baskets_since.tolist() == [1, 0, 2, 1, 0, 0]


def test_first_and_last_baskets_of_each_user(baskets: Baskets):
    counts = np.array([0, 2, 9])
    assert contents(baskets.first(counts)) == {3: [], 8: [(0, [9]), (14, [5, 7])], 20: [(0, [7])]}
    assert contents(baskets.last(counts)) == {3: [], 8: [(14, [5, 7]), (21, [9, 2])], 20: [(0, [7])]}
    assert contents(baskets.first(baskets.lengths - 1)) == {
        3: [(0, [7, 5, 9])],
        8: [(0, [9]), (14, [5, 7])],
        20: [],
    }


def test_users_are_taken_in_the_order_given(baskets: Baskets):
    part = baskets.take(np.array([2, 0]))
    assert contents(part) == {20: [(0, [7])], 3: [(0, [7, 5, 9]), (7, [5])]}
    assert part.subject_id.tolist() == [20, 3]
    assert len(baskets.take(np.array([], dtype=np.int64))) == 0


def test_blocks_cover_every_user_once(baskets: Baskets):
    assert [(block.start, block.stop) for block in baskets.blocks(2)] == [(0, 2), (2, 3)]


def test_order_of_users_and_files_changes_nothing(tmp_path: Path):
    shoppers = random_shoppers(0)
    plain = read_orders(write_shop(tmp_path / "plain", shoppers).paths["baskets"])
    users = np.random.default_rng(1).permutation(list(shoppers)).tolist()
    other_order = read_orders(
        write_shop(tmp_path / "shuffled", shoppers, files=3, users=users).paths["baskets"]
    )
    for name, values in vars(plain).items():
        np.testing.assert_array_equal(getattr(other_order, name), values, err_msg=name)


def test_order_of_lines_changes_only_the_places_in_the_cart(tmp_path: Path):
    shoppers = random_shoppers(0)
    shops = [
        write_shop(tmp_path / str(seed), shoppers, seed=seed).read().learning_data.training
        for seed in (None, 1)
    ]
    names = [name for name in vars(shops[0]) if name != "cart_places"]
    for name in names:
        np.testing.assert_array_equal(getattr(shops[0], name), getattr(shops[1], name), err_msg=name)
    assert (shops[0].cart_places != shops[1].cart_places).any()


def test_folder_without_files_is_refused(tmp_path: Path):
    with pytest.raises(ContractError, match="no file in"):
        read_orders(tmp_path)


def test_file_of_another_contract_is_refused(tmp_path: Path):
    shop = write_shop(tmp_path, SHOPPERS)
    (path,) = shop.paths["baskets"].glob("*.parquet")
    table = pq.read_table(path)
    other = tmp_path / "other" / path.name
    other.parent.mkdir()
    pq.write_table(table.replace_schema_metadata({"contract": "baskets/0"}), other)
    with pytest.raises(ContractError, match=r"contract is baskets/0, expected baskets/1"):
        read_orders(other.parent)
