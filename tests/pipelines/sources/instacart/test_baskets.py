"""baskets/1 from raw Instacart files: a plain loop over the lines, hidden orders, and a suite that notices a change."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.engine.buckets import Buckets
from pipelines.sources.instacart import steps
from pipelines.sources.instacart.baskets import write_bucket
from pipelines.sources.instacart.tables import find_source
from schemas.cards import StepCard
from schemas.contract import write_table
from schemas.expectations.baskets import baskets as suite_of_baskets
from schemas.expectations.validation import validate
from schemas.layout import Layout
from schemas.tables.baskets import BASKETS
from schemas.tables.seqset import TARGET_HIDDEN
from tests.support.examples import examples
from tests.support.instacart_files import (
    Order,
    Shop,
    made_up_shop,
    run_all,
    tables_of,
    write_shop,
    write_tables,
)

SHOP: Shop = {
    1: [
        Order(90, "prior", None, [30, 7, 20]),
        Order(12, "prior", 0.0, [20, 7, 20]),
        Order(50, "train", 7.0, [100]),
    ],
    2: [
        Order(60, "prior", None, [7, 30]),
        Order(61, "prior", 30.0, []),
        Order(62, "test", 3.0, [30, 100]),
    ],
}


def baskets_of(layout: Layout) -> pl.DataFrame:
    return pl.concat(pl.read_parquet(file) for file in sorted(layout.baskets.glob("*.parquet")))


def made(folder: Path, shop: Shop, **options: int) -> Layout:
    return run_all(write_shop(folder / "raw", shop), Layout(folder / "instacart"), **options)


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    return made(tmp_path_factory.mktemp("golden"), SHOP, subjects_per_bucket=1)


@pytest.fixture
def layout(golden: Layout, tmp_path: Path) -> Layout:
    """Return a copy that a test may change."""
    return Layout(shutil.copytree(golden.root, tmp_path / "copy"))


def test_baskets_match_hand_computed_ones(layout: Layout):
    columns = ("subject_id", "basket_index", "encounter_id", "days_since_first", "products", "flags")
    assert baskets_of(layout).select(columns).rows() == [
        (1, 0, 90, 0, [30, 7, 20], 0),
        (1, 1, 12, 0, [20, 7], 0),  # 20 was put in twice, first of all
        (1, 2, 50, 7, [100], 0),
        (2, 0, 60, 0, [7, 30], 0),
        (2, 1, 61, 30, [], 0),
        (2, 2, 62, 33, [], TARGET_HIDDEN),
    ]
    counts = StepCard.read(layout.cards, "baskets").counts
    assert counts == {"baskets": 6, "filled_baskets": 4, "products_in_baskets": 8}


def naive_baskets(shop: Shop) -> list[tuple]:
    """Return the baskets of each user, order by order and line by line."""
    rows = []
    for user in sorted(shop):
        day = 0.0
        for index, order in enumerate(shop[user]):
            day += float(order.days or 0) if index else 0
            is_hidden = order.eval_set == "test"
            products: list[int] = []
            for product in [] if is_hidden else order.products:
                if product not in products:
                    products.append(product)
            rows.append((user, index, order.order_id, day, products, TARGET_HIDDEN * is_hidden))
    return rows


@settings(max_examples=examples(4), deadline=None)
@given(
    seed=st.integers(0, 10_000), subjects_per_bucket=st.sampled_from([1, 3, 100]), is_reversed=st.booleans()
)
def test_random_shops_agree_with_a_loop_over_their_lines(
    seed: int, subjects_per_bucket: int, is_reversed: bool, tmp_path_factory: pytest.TempPathFactory
):
    folder, shop = tmp_path_factory.mktemp("shop"), made_up_shop(seed)
    # a table without rows is refused, and a random shop may have no order of one kind
    shop[1000] = [Order(9998, "prior", None, [1, 2, 1]), Order(9999, "train", 7.0, [2])]
    tables = tables_of(shop, list(range(1, 40)))
    for _, rows in tables.values():
        rows[:] = rows[::-1] if is_reversed else rows
    source, layout = find_source(write_tables(folder / "raw", tables)), Layout(folder / "instacart")
    layout.baskets.mkdir(parents=True)
    steps.inspect_raw(source, layout)
    steps.extract_subjects(source, layout, subjects_per_bucket=subjects_per_bucket)
    steps.extract_encounters(source, layout)
    steps.extract_events(source, layout)
    counts = [write_bucket(layout, layout.baskets, bucket) for bucket in range(len(Buckets.read(layout)))]
    expected = naive_baskets(shop)
    sizes = [len(row[4]) for row in expected]
    assert np.sum(counts, axis=0).tolist() == [len(expected), np.count_nonzero(sizes), sum(sizes)]
    columns = ("subject_id", "basket_index", "encounter_id", "days_since_first", "products", "flags")
    assert baskets_of(layout).select(columns).rows() == expected


def test_product_too_rare_for_a_token_is_in_its_basket(tmp_path: Path):
    layout = made(tmp_path, SHOP | {3: [Order(70, "prior", None, [4321]), Order(71, "train", 1.0, [7])]})
    assert [4321] in baskets_of(layout)["products"].to_list()


def test_held_out_is_never_read(layout: Layout, tmp_path: Path):
    raw = write_shop(tmp_path / "again" / "raw", SHOP)
    (raw / "held_out.csv").write_bytes(b"\xff nothing that could be read")
    again = run_all(raw, Layout(tmp_path / "again" / "instacart"), subjects_per_bucket=1)
    assert baskets_of(again).equals(baskets_of(layout))


def failed(layout: Layout) -> set[str]:
    return {outcome.rule.name for outcome in validate(suite_of_baskets(layout)).failed("ERROR")}


def test_every_expectation_holds(layout: Layout):
    assert failed(layout) == set()


def without_first_product(baskets: pl.DataFrame) -> pl.DataFrame:
    return baskets.with_columns(
        products=pl.when(pl.col("encounter_id") == 90)
        .then(pl.col("products").list.slice(1))
        .otherwise("products")
    )


def with_hidden_products(baskets: pl.DataFrame) -> pl.DataFrame:
    is_hidden = pl.col("flags") == TARGET_HIDDEN
    return baskets.with_columns(products=pl.when(is_hidden).then(pl.lit([30])).otherwise("products"))


def with_repeated_products(baskets: pl.DataFrame) -> pl.DataFrame:
    twice = pl.concat_list("products", "products")
    return baskets.with_columns(
        products=pl.when(pl.col("encounter_id") == 90).then(twice).otherwise("products")
    )


OTHER_ORDERS = {"order_has_its_basket", "basket_has_its_order", "basket_holds_the_products_of_its_order"}


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        (without_first_product, {"basket_holds_the_products_of_its_order"}),
        (with_hidden_products, {"hidden_basket_is_empty", "basket_holds_the_products_of_its_order"}),
        (with_repeated_products, {"products_are_distinct", "basket_holds_the_products_of_its_order"}),
        (lambda baskets: baskets.filter(encounter_id=90).clear(), {"order_has_its_basket"}),
        (lambda baskets: baskets.with_columns(encounter_id=pl.col("encounter_id") + 5000), OTHER_ORDERS),
        (
            lambda baskets: baskets.with_columns(days_since_first=pl.lit(-1.0, pl.Float32)),
            {"days_since_first_is_in_range"},
        ),
    ],
)
def test_suite_notices_changed_baskets(
    change: Callable[[pl.DataFrame], pl.DataFrame], rules: set[str], layout: Layout
):
    file = sorted(layout.baskets.glob("*.parquet"))[0 if change is not with_hidden_products else 1]
    other_baskets = change(pl.read_parquet(file)).select(BASKETS.names)
    file.unlink()
    write_table(other_baskets.to_arrow().cast(BASKETS.remove_metadata()), file, BASKETS, made_by="test")
    assert failed(layout) == rules
