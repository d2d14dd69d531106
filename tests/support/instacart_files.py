"""Raw Instacart files from a few lines of Python: the orders of each user."""

import gzip
import random
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from pipelines.sources.instacart import corpus as instacart_corpus
from pipelines.sources.instacart import steps as instacart
from pipelines.sources.instacart.baskets import write_baskets
from pipelines.sources.instacart.tables import find_source
from schemas.layout import Layout
from schemas.rules import DataRules

RULES = DataRules(min_count=1)


@dataclass(frozen=True)
class Order:
    """One order; `days` None: not given. The products of a test order are only in `held_out`."""

    order_id: int
    eval_set: str
    days: float | str | None
    products: list[int] = field(default_factory=list)


Shop = dict[int, list[Order]]
Table = tuple[list[str], list[list[object]]]


def tables_of(shop: Shop, products: list[int] | None = None) -> dict[str, Table]:
    """Return table -> (header, rows) in the published layout."""
    head = ["order_id", "product_id", "add_to_cart_order", "reordered"]
    lines: dict[str, list[list[object]]] = {"prior": [], "train": [], "test": []}
    orders: list[list[object]] = []
    for user, user_orders in shop.items():
        for number, order in enumerate(user_orders, start=1):
            days = "" if order.days is None else order.days
            orders.append([order.order_id, user, order.eval_set, number, 0, "12", days])
            for place, product in enumerate(order.products, start=1):
                lines.get(order.eval_set, []).append([order.order_id, product, place, 0])
    product_ids = products or sorted(
        {product for user_orders in shop.values() for order in user_orders for product in order.products}
    )
    return {
        "orders": (
            [
                "order_id", "user_id", "eval_set", "order_number",
                "order_dow", "order_hour_of_day", "days_since_prior_order",
            ],
            orders,
        ),
        "order_products__prior": (head, lines["prior"]),
        "order_products__train": (head, lines["train"]),
        "held_out": (head, lines["test"]),
        "products": (
            ["product_id", "product_name", "aisle_id", "department_id"],
            [[product, f'"Product {product}, fresh"', 1, 1] for product in product_ids],
        ),
    }  # fmt: skip


def write_tables(folder: Path, tables: dict[str, Table], form: str = "csv") -> Path:
    """Write every table as csv, csv.gz or parquet."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (head, rows) in tables.items():
        text = "\n".join(",".join(map(str, row)) for row in [head, *rows]) + "\n"
        path = folder / f"{name}.{form}"
        match form:
            case "csv":
                path.write_text(text)
            case "csv.gz":
                path.write_bytes(gzip.compress(text.encode()))
            case _:
                pl.read_csv(text.encode(), infer_schema_length=None).write_parquet(path)
    return folder


def write_shop(folder: Path, shop: Shop, products: list[int] | None = None) -> Path:
    return write_tables(folder, tables_of(shop, products))


def run_all(raw: Path, layout: Layout, rules: DataRules = RULES, *, subjects_per_bucket: int = 3) -> Layout:
    """Run every step from the raw files to the shards and the baskets."""
    source = find_source(raw)
    layout.root.mkdir(parents=True, exist_ok=True)
    instacart.inspect_raw(source, layout)
    instacart.extract_subjects(source, layout, subjects_per_bucket=subjects_per_bucket)
    instacart.extract_encounters(source, layout)
    instacart.extract_events(source, layout)
    instacart_corpus.fit_vocab(layout, rules)
    instacart_corpus.write_seqset(layout, rules)
    write_baskets(layout)
    return layout


def sets_of(layout: Layout) -> list[tuple]:
    """Return (subject, set_index, order, days_since_prior, days_since_first, tokens as text, flags) of every set."""
    words = dict(pl.read_parquet(layout.vocab).select("token_id", "token").drop_nulls().iter_rows())
    shards = pl.concat(pl.read_parquet(file) for file in sorted(layout.seqset.glob("*.parquet")))
    columns = (
        "subject_id", "set_index", "encounter_id", "days_since_prior", "days_since_first", "tokens", "flags",
    )  # fmt: skip
    return [
        (*row[:5], [words[token] for token in row[5]], row[6]) for row in shards.select(columns).iter_rows()
    ]


def made_up_shop(seed: int, users: int = 8) -> Shop:
    """Return users of one to six orders: gaps of 0 days among them, empty baskets, test and train users."""
    chance = random.Random(seed)
    ids = chance.sample(range(1, 1000), 6 * users)
    shop: Shop = {}
    for user in chance.sample(range(1, 500), users):
        count, last = chance.randint(1, 6), chance.choice(["train", "test"])
        shop[user] = [
            Order(
                ids.pop(),
                last if number == count else "prior",
                None if number == 1 else float(chance.choice([0, 0, 1, 7, 30])),
                chance.sample(range(1, 40), chance.randint(0 if chance.random() < 0.1 else 1, 8)),
            )
            for number in range(1, count + 1)
        ]
    return shop
