"""Instacart to shards: hand-computed sets, agreement with naive rules, and faulty input."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nest_model.data.seqsets import SeqSets
from pipelines.events.split import unit_interval
from pipelines.sources.instacart import corpus as instacart_corpus
from pipelines.sources.instacart import steps as instacart
from pipelines.sources.instacart.rows import VALIDATION_START
from pipelines.sources.instacart.tables import find_source
from schemas.cards import StepCard
from schemas.errors import InputError
from schemas.expectations import INSTACART_SUITES
from schemas.expectations.validation import validate
from schemas.layout import Layout
from schemas.rules import PRESETS, DataRules
from schemas.tables.events import EVENTS
from schemas.tables.seqset import TARGET_HIDDEN
from tests.support.commands import ROOT
from tests.support.examples import examples
from tests.support.instacart_files import (
    Order,
    Shop,
    made_up_shop,
    run_all,
    sets_of,
    tables_of,
    write_shop,
    write_tables,
)

DUNNHUMBY = ROOT.parent / "shared" / "data" / "baskets" / "dunnhumby"

GOLDEN: Shop = {
    # two orders on one day, with order numbers that contradict the order of ids
    1: [
        Order(90, "prior", None, [30, 7, 20]),
        Order(12, "prior", 0.0, [20]),
        Order(50, "train", 7.0, [20, 100, 30]),
    ],
    2: [Order(60, "prior", None, [7, 30]), Order(61, "prior", 30.0, [7]), Order(62, "test", 3.0, [30, 100])],
    3: [Order(70, "test", None, [20])],
    4: [Order(80, "prior", None, []), Order(81, "prior", 5.0, [200]), Order(82, "test", 1.0, [7])],
}


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    folder = tmp_path_factory.mktemp("golden")
    return run_all(write_shop(folder / "raw", GOLDEN), Layout(folder / "instacart"))


def test_sets_match_hand_computed_sets(golden: Layout):
    hidden_flag = TARGET_HIDDEN
    assert sets_of(golden) == [
        (1, 0, 90, 0.0, 0.0, ["ITEM:7", "ITEM:20", "ITEM:30"], 0),
        (1, 1, 12, 0.0, 0.0, ["ITEM:20"], 0),
        (1, 2, 50, 7.0, 7.0, ["ITEM:20", "ITEM:30", "ITEM:100"], 0),
        (2, 0, 60, 0.0, 0.0, ["ITEM:7", "ITEM:30"], 0),
        (2, 1, 61, 30.0, 30.0, ["ITEM:7"], 0),
        (2, 2, 62, 3.0, 33.0, [], hidden_flag),
        (3, 0, 70, 0.0, 0.0, [], hidden_flag),
        (4, 0, 80, 0.0, 0.0, [], 0),
        (4, 1, 81, 5.0, 5.0, ["[UNK]"], 0),
        (4, 2, 82, 1.0, 6.0, [], hidden_flag),
    ]


def test_vocabulary_counts_training_and_visible_orders_without_targets(golden: Layout):
    counts = dict(
        pl.read_parquet(golden.vocab).filter(kind="ITEM").select("token", "count_train").iter_rows()
    )
    # user 2's order 61 and user 4's 81 are targets, and no hidden order counts at all
    assert counts == {"ITEM:20": 3, "ITEM:30": 3, "ITEM:7": 2, "ITEM:100": 1}


def test_cart_position_is_value_and_set_is_ordered_by_product(golden: Layout):
    events = pl.concat(pl.read_parquet(file) for file in sorted(golden.events.glob("*.parquet")))
    assert events.columns == EVENTS.names
    first = events.filter(encounter_id=90).select("code", "value", "rank")
    assert first.rows() == [("7", 2.0, 7), ("20", 3.0, 20), ("30", 1.0, 30)]
    assert set(events["kind"]) == {"ITEM"}
    assert set(events["vocab"]) == {"product_id"}


def test_users_with_hidden_last_order_are_test_users(golden: Layout):
    split = dict(pl.read_parquet(golden.subjects).select("subject_id", "split").iter_rows())
    assert {user for user, name in split.items() if name == "test"} == {2, 3, 4}
    assert split[1] in ("train", "val")


def test_five_of_a_hundred_training_users_are_for_validation_by_hash(tmp_path: Path):
    shop = {user: [Order(user, "train", None, [1])] for user in range(1, 2001)}
    source = find_source(write_shop(tmp_path / "raw", shop))
    layout = Layout(tmp_path)
    instacart.extract_subjects(source, layout, subjects_per_bucket=4000)
    users = pl.read_parquet(layout.subjects)
    assert users["split"].equals(users["pretrain_split"].alias("split"))
    val = set(users.filter(split="val")["subject_id"])
    assert val == {user for user in shop if unit_interval(user) >= 0.95}
    assert 0.035 < len(val) / len(shop) < 0.065


def test_what_an_order_is_evaluated_as_is_no_admission_type(golden: Layout):
    """`eval_set` is the split of the last order: a model that read it would know what it is to predict."""
    for table in (golden.encounters, golden.seqset / "*.parquet"):
        assert pl.read_parquet(table)["admission_type"].null_count() == 10


def test_card_does_not_count_hidden_orders_as_baskets(golden: Layout):
    counts = StepCard.read(golden.cards, "seqset").counts
    assert {name: counts[name] for name in ("subjects", "sets", "hidden_sets", "empty_sets", "tokens")} == {
        "subjects": 4, "sets": 7, "hidden_sets": 3, "empty_sets": 1, "tokens": 11,
    }  # fmt: skip
    assert counts["tokens_per_set[0,1)"] == 1


def test_held_out_table_is_never_read(golden: Layout, tmp_path: Path):
    raw = write_shop(tmp_path / "raw", GOLDEN)
    (raw / "held_out.csv").write_bytes(b"\xff nothing that could be read")
    assert outcome(run_all(raw, Layout(tmp_path / "instacart"))) == outcome(golden)


@pytest.mark.parametrize("form", ["csv.gz", "parquet"])
def test_the_form_of_the_files_changes_no_byte(form: str, golden: Layout, tmp_path: Path):
    raw = write_tables(tmp_path / "raw", tables_of(GOLDEN), form)
    assert outcome(run_all(raw, Layout(tmp_path / "instacart"))) == outcome(golden)


def outcome(layout: Layout) -> dict[str, bytes]:
    """Return the bytes of every output except the card with the hashes of the raw files."""
    files = sorted(path for path in layout.root.rglob("*") if path.is_file() and path.name != "raw.card.json")
    return {str(path.relative_to(layout.root)): path.read_bytes() for path in files}


@pytest.mark.parametrize("name", INSTACART_SUITES)
def test_every_expectation_holds_on_the_golden_shop(name: str, golden: Layout):
    report = validate(INSTACART_SUITES[name](golden))
    assert report.passed("ERROR"), report.message("ERROR")
    assert {outcome.rule.name for outcome in report.failed("WARN")} <= {
        "set_has_tokens",
        "token_is_not_unknown",
    }


def naive_sets(shop: Shop) -> list[tuple]:
    """Return the sets by the rules of spec/instacart.md, order by order."""
    vocabulary: set[int] = set()
    for user, orders in shop.items():
        visible = [order for order in orders if order.eval_set != "test" and order.products]
        if orders[-1].eval_set == "test":
            visible = visible[:-1]
        elif unit_interval(user) >= 0.95:
            visible = []
        vocabulary |= {product for order in visible for product in order.products}
    rows = []
    for user in sorted(shop):
        first = 0.0
        for index, order in enumerate(shop[user]):
            days = float(order.days or 0)
            first += days
            products = [] if order.eval_set == "test" else sorted(order.products)
            tokens = [f"ITEM:{product}" if product in vocabulary else "[UNK]" for product in products]
            flags = TARGET_HIDDEN if order.eval_set == "test" else 0
            rows.append((user, index, order.order_id, days, first, tokens, flags))
    return rows


def test_last_visible_order_is_held_back_when_empty_orders_follow(
    tmp_path: Path,
):
    shop = {
        1: [
            Order(10, "prior", None, [1, 2]),
            Order(11, "prior", 1.0, [7]),
            Order(12, "prior", 1.0, []),
            Order(13, "test", 1.0, [3]),
        ],
        2: [Order(20, "train", None, [1, 2])],
    }
    layout = run_all(write_shop(tmp_path / "raw", shop), Layout(tmp_path / "instacart"))
    assert instacart_corpus.last_visible_orders(layout).to_list() == [11]
    assert [row[5] for row in sets_of(layout) if row[0] == 1] == [["ITEM:1", "ITEM:2"], ["[UNK]"], [], []]


@settings(max_examples=examples(12), deadline=None)
@given(seed=st.integers(0, 10_000))
def test_held_back_orders_are_the_targets_of_random_shops(
    seed: int, tmp_path_factory: pytest.TempPathFactory
):
    folder, shop = tmp_path_factory.mktemp("shop"), made_up_shop(seed)
    chance = random.Random(seed)
    for order in (order for orders in shop.values() for order in orders):
        order.products[:] = order.products if chance.random() < 0.6 else []
    shop[1000] = [Order(9999, "train", None, [1])]  # at least one to fit on
    tables = tables_of(shop, list(range(1, 40)))
    for name in ("order_products__prior", "order_products__train"):
        tables[name][1].extend([[9999, 2, 9, 0]])  # a table without a row is refused
    layout = run_all(write_tables(folder / "raw", tables), Layout(folder / "instacart"))
    test_users = set(pl.read_parquet(layout.subjects).filter(split="test")["subject_id"])
    seqsets = SeqSets.read(layout.seqset)
    filled_sets = np.flatnonzero(np.diff(seqsets.event_offsets) > 0)
    # sets are in order, so the last of each user is what stays
    last_orders = {int(seqsets.subject_id[at]): int(seqsets.encounter_id[at]) for at in filled_sets}
    targets = {order for user, order in last_orders.items() if user in test_users}
    assert set(instacart_corpus.last_visible_orders(layout)) == targets


@settings(
    max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 10_000), subjects_per_bucket=st.sampled_from([1, 3, 100]))
def test_random_shops_agree_with_naive_rules_in_any_row_order(
    seed: int, subjects_per_bucket: int, tmp_path_factory: pytest.TempPathFactory
):
    folder, shop = tmp_path_factory.mktemp("shop"), made_up_shop(seed)
    # a table without rows is refused, and a random shop may have no order of one kind
    shop[1000] = [Order(9998, "prior", None, [1]), Order(9999, "train", 7.0, [2])]
    tables = tables_of(shop, list(range(1, 40)))
    for _, rows in tables.values():
        random.Random(seed).shuffle(rows)
    raw = write_tables(folder / "raw", tables)
    layout = run_all(raw, Layout(folder / "instacart"), subjects_per_bucket=subjects_per_bucket)
    assert sets_of(layout) == naive_sets(shop)


def test_product_below_min_count_is_unknown_token(tmp_path: Path):
    """The count is of users, not of orders."""
    raw = write_shop(tmp_path / "raw", GOLDEN)
    layout = run_all(raw, Layout(tmp_path / "instacart"), DataRules(min_count=2))
    assert sets_of(layout)[2][5] == ["[UNK]", "ITEM:30", "[UNK]"]


RULES_OF = {"default": DataRules(min_count=1), "fit_on all": DataRules(min_count=1, fit_on="all"), **PRESETS}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "default" else pytest.mark.long) for name in RULES_OF]
)
def test_noise_in_target_orders_changes_no_fitted_table(name: str, tmp_path: Path):
    """Targets are the last visible and the hidden order of test users, and all orders of validation users."""
    shop = made_up_shop(3, users=40)
    noisy = {
        user: [replace(order, products=[*order.products]) for order in orders]
        for user, orders in shop.items()
    }
    chance, num_changed = random.Random(4), 0
    for user, orders in noisy.items():
        targets = [order for order in orders if order.products and order.eval_set != "test"][-1:]
        if orders[-1].eval_set == "test":
            targets.append(orders[-1])
        elif unit_interval(user) < VALIDATION_START:
            targets = []
        else:
            targets = orders
        for order in targets:
            order.products[:] = chance.sample(range(1, 40), max(len(order.products), 1))
            num_changed += 1
    assert num_changed > 20
    layouts = []
    for place, each in (("clean", shop), ("noisy", noisy)):
        raw = write_shop(tmp_path / place / "raw", each, list(range(1, 40)))
        layouts.append(run_all(raw, Layout(tmp_path / place / "instacart"), RULES_OF[name]))
    clean_layout, noisy_layout = layouts
    assert noisy_layout.vocab.read_bytes() == clean_layout.vocab.read_bytes()
    assert (noisy_layout.events / "ITEM-00000.parquet").read_bytes() != (
        clean_layout.events / "ITEM-00000.parquet"
    ).read_bytes()
    assert pl.read_parquet(clean_layout.vocab)["count_train"].sum() > 0


@pytest.mark.parametrize("name", RULES_OF)
def test_the_vocabulary_counts_the_same_orders_under_any_preset(name: str, tmp_path: Path, golden: Layout):
    rules = RULES_OF[name].model_copy(update={"min_count": 1})
    layout = run_all(write_shop(tmp_path / "raw", GOLDEN), Layout(tmp_path / "instacart"), rules)
    assert pl.read_parquet(layout.vocab).equals(pl.read_parquet(golden.vocab))


def test_missing_gap_counts_as_zero_days_with_warning(tmp_path: Path):
    shop = {1: [Order(1, "prior", None, [1]), Order(2, "prior", None, [2]), Order(3, "train", 4.0, [1])]}
    layout = run_all(write_shop(tmp_path / "raw", shop), Layout(tmp_path / "instacart"))
    assert [row[3:5] for row in sets_of(layout)] == [(0, 0), (0, 0), (4, 4)]
    card = StepCard.read(layout.cards, "encounters")
    assert card.flows["orders"].noted["gap_not_given"] == 1
    assert "do not say how many days" in card.warnings[0]


def test_gap_before_first_order_is_ignored(tmp_path: Path):
    shop = {1: [Order(1, "prior", 9.0, [1]), Order(2, "train", 4.0, [2])]}
    layout = run_all(write_shop(tmp_path / "raw", shop), Layout(tmp_path / "instacart"))
    assert [row[3:5] for row in sets_of(layout)] == [(0, 0), (4, 4)]
    assert StepCard.read(layout.cards, "encounters").flows["orders"].noted["gap_before_a_first_order"] == 1


def test_gaps_capped_at_30_days_are_noted(tmp_path: Path):
    def notes(longest: float, name: str) -> list[str]:
        shop = {
            1: [Order(1, "prior", None, [1]), Order(2, "prior", 30.0, [1]), Order(3, "train", longest, [1])]
        }
        layout = run_all(write_shop(tmp_path / name, shop), Layout(tmp_path / name / "instacart"))
        return StepCard.read(layout.cards, "encounters").notes

    (note,) = notes(30.0, "capped")
    assert "at least" in note
    assert notes(31.0, "not capped") == []


def test_a_few_lines_of_no_known_order_or_product_are_dropped_and_counted(tmp_path: Path):
    shop = {user: [Order(user, "prior", None, list(range(1, 41)))] for user in range(1, 101)}
    tables = tables_of(shop, list(range(1, 41)))
    tables["order_products__prior"][1].extend([[99999, 1, 1, 0], [5, 4321, 41, 0]])
    tables["order_products__train"] = tables_of(GOLDEN)["order_products__train"]
    tables["order_products__train"] = (tables["order_products__train"][0], [[7, 1, 1, 0]])
    layout = run_all(write_tables(tmp_path / "raw", tables), Layout(tmp_path / "instacart"))
    card = StepCard.read(layout.cards, "events")
    flow = card.flows["order_products__prior"]
    assert flow.reconciles
    assert flow.dropped == {"unknown_order": 1, "hidden_order": 0, "unknown_product": 1}
    assert StepCard.read(layout.cards, "seqset").flows["ITEM"].dropped["unknown_product"] == 1
    assert not any("99999" in sentence or "4321" in sentence for sentence in card.warnings)


def test_a_product_in_two_lines_of_an_order_is_in_its_set_twice(tmp_path: Path):
    shop = {1: [Order(1, "prior", None, [5, 6, 5]), Order(2, "train", 1.0, [6])]}
    layout = run_all(write_shop(tmp_path / "raw", shop), Layout(tmp_path / "instacart"))
    assert sets_of(layout)[0][5] == ["ITEM:5", "ITEM:5", "ITEM:6"]


def test_products_of_hidden_order_are_dropped(tmp_path: Path):
    tables = tables_of(GOLDEN)
    tables["order_products__train"][1].append([62, 30, 1, 0])
    layout = run_all(write_tables(tmp_path / "raw", tables), Layout(tmp_path / "instacart"))
    assert sets_of(layout)[5] == (2, 2, 62, 3.0, 33.0, [], TARGET_HIDDEN)
    assert StepCard.read(layout.cards, "events").flows["order_products__train"].dropped["hidden_order"] == 1


def set_cell(table: str, row: int, column: str, value: object):
    def change(tables: dict) -> None:
        head, rows = tables[table]
        rows[row][head.index(column)] = value

    return change


def repeat_row(table: str, row: int):
    def change(tables: dict) -> None:
        tables[table][1].append(list(tables[table][1][row]))

    return change


def set_column(table: str, column: str, value: object):
    def change(tables: dict) -> None:
        for row in tables[table][1]:
            row[tables[table][0].index(column)] = value

    return change


def drop_table(table: str):
    def change(tables: dict) -> None:
        del tables[table]

    return change


FAULTS = {
    "an order twice": (repeat_row("orders", 0), "orders: column order_id: 1 of 11 rows repeat"),
    "two orders of one number": (
        set_cell("orders", 1, "order_number", 1), "orders: column order_number: 1 of 10 rows repeat",
    ),
    "a strange eval_set": (
        set_cell("orders", 0, "eval_set", "8675309"), "column eval_set: 1 of 10 rows hold neither prior",
    ),
    "a train order that is not the last": (
        set_cell("orders", 0, "eval_set", "train"), "1 of 10 rows are train or test, but not the last",
    ),
    "days below 0": (
        set_cell("orders", 1, "days_since_prior_order", -8675309), "1 of 10 values are not a number of days",
    ),
    "days that are no number": (
        set_cell("orders", 1, "days_since_prior_order", "8675309x"), "column days_since_prior_order: 1 of 10",
    ),
    "days that are NaN": (set_cell("orders", 1, "days_since_prior_order", "NaN"), "column days_since_prior_order"),
    "an order id that is no number": (set_cell("orders", 0, "order_id", "8675309x"), "column order_id: 1 of 10 values"),
    "an order without a user": (set_cell("orders", 0, "user_id", ""), "column user_id: 1 of 10 rows have none"),
    "lines of unknown products": (
        set_column("order_products__prior", "product_id", 8675309),
        "8 of 8 rows name a product that is not in products",
    ),
    "lines of unknown orders": (
        set_column("order_products__train", "order_id", 8675309), "3 of 3 rows name an order that is not in orders",
    ),
    "no products": (drop_table("products"), "products: no such file"),
    "no orders": (drop_table("orders"), "orders: no such file"),
    "a table without its column": (
        lambda tables: tables["order_products__prior"][0].__setitem__(1, "item"),
        "order_products__prior.csv: no column product_id",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_names_table_column_and_count_but_no_value(fault: str, tmp_path: Path):
    change, message = FAULTS[fault]
    tables = tables_of(GOLDEN)
    change(tables)
    raw = write_tables(tmp_path / "raw", tables)
    with pytest.raises(InputError) as error:
        run_all(raw, Layout(tmp_path / "instacart"))
    assert message in str(error.value)
    assert "8675309" not in str(error.value)
    assert not (tmp_path / "instacart" / "seqset").exists()
    assert not list((tmp_path / "instacart").rglob("*.arrow"))


def test_orders_are_refused_when_no_line_is_visible(tmp_path: Path):
    users = range(1, 30)
    shop = {
        user: [Order(user, "prior", None, []), Order(100 + user, "test" if user % 2 else "train", 1.0, [])]
        for user in users
    }
    tables = tables_of(shop, [7])
    for name in ("order_products__prior", "order_products__train"):
        tables[name] = (tables[name][0], [[100 + user, 7, 1, 0] for user in users if user % 2])
    layout = Layout(tmp_path / "instacart")
    with pytest.raises(InputError, match="seqset: there is no token in any of 58 sets: there are no events"):
        run_all(write_tables(tmp_path / "raw", tables), layout)
    assert not layout.seqset.exists()


def test_missing_folder_is_named(tmp_path: Path):
    with pytest.raises(InputError, match="no such folder"):
        find_source(tmp_path / "nowhere")


@pytest.mark.demo
@pytest.mark.skipif(not DUNNHUMBY.exists(), reason="the dunnhumby sample is not at ../shared/data/baskets")
def test_real_baskets_are_extracted_completely(tmp_path: Path):
    layout = run_all(DUNNHUMBY, Layout(tmp_path / "instacart"), DataRules(), subjects_per_bucket=400)
    counts = StepCard.read(layout.cards, "seqset").counts
    assert {name: counts[name] for name in ("shards", "subjects", "sets", "hidden_sets", "tokens")} == {
        "shards": 3, "subjects": 1124, "sets": 10_968 - 349, "hidden_sets": 349, "tokens": 73_030 + 6_185,
    }  # fmt: skip
    rows = pl.concat(pl.read_parquet(file) for file in sorted(layout.seqset.glob("*.parquet")))
    assert set(rows.filter(pl.col("set_index") > 0)["days_since_prior"]) == {7.0}
    for suite in INSTACART_SUITES.values():
        assert validate(suite(layout)).passed("ERROR")


def test_cart_is_refused_when_rows_differ_from_lines(tmp_path: Path):
    source, layout = (
        find_source(write_shop(tmp_path / "raw", made_up_shop(1))),
        Layout(tmp_path / "instacart"),
    )
    instacart.inspect_raw(source, layout)
    instacart.extract_subjects(source, layout, subjects_per_bucket=3)
    instacart.extract_encounters(source, layout)
    card = StepCard.read(layout.cards, "raw")
    name = "rows_order_products__prior"
    card.model_copy(update={"counts": card.counts | {name: card.counts[name] + 1}}).write(layout.cards)
    with pytest.raises(InputError, match=r"order_products__prior\.csv: .* vanished within a cell"):
        instacart.extract_events(source, layout)
