"""A shop as files of baskets/1, subjects and held_out, for tests of systems that recommend the next basket."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from nest_model.next_set.questions import Shop, read_shop
from schemas.contract import write_table
from schemas.tables.baskets import BASKETS
from schemas.tables.events import SUBJECTS
from schemas.tables.seqset import TARGET_HIDDEN
from tests.support.factories.shards import DAY_US

DAYS_APART = 7.0
ORDERS_OF_USER = 1000


@dataclass(frozen=True)
class Shopper:
    """A user's orders, a week apart if nothing else is said."""

    split: str
    baskets: Sequence[Sequence[int]]
    hidden_products: Sequence[int] | None = None  # products of a last order whose content only held_out has
    days: Sequence[float] = ()
    later: Sequence[Sequence[int]] = ()  # after the hidden order, which no real shop has

    def orders(self) -> list[tuple[float, Sequence[int], int]]:
        """Return the day, the visible products and the flags of each order."""
        contents = [(basket, 0) for basket in self.baskets]
        contents += [([], TARGET_HIDDEN)] if self.hidden_products is not None else []
        contents += [(basket, 0) for basket in self.later]
        days = self.days or [DAYS_APART * number for number in range(len(contents))]
        return [(day, *content) for day, content in zip(days, contents, strict=True)]


Shoppers = Mapping[int, Shopper]


@dataclass(frozen=True)
class ShopFiles:
    """The files of a shop, as the command takes them."""

    root: Path

    @property
    def paths(self) -> dict[str, Path]:
        return {"baskets": self.root / "baskets", "subjects": self.root / "subjects.parquet"}

    def read(self, target: str = "last_visible", **options: Any) -> Shop:
        raw = self.root if target == "held_out" else None
        return read_shop(**self.paths, **{"target": target, "raw": raw} | options)


def order_id(user: int, number: int) -> int:
    return ORDERS_OF_USER * user + number


def write_shop(
    root: Path, shoppers: Shoppers, *, files: int = 1, users: Sequence[int] = (), seed: int | None = None
) -> ShopFiles:
    """Write a shop.

    Args:
        files: number of files of baskets/1.
        users: the users in the order of the files, if not by id.
        seed: of a shuffle of the products of each order.
    """
    order = list(users or sorted(shoppers))
    for number, part in enumerate(np.array_split(np.array(order), files)):
        _write_baskets(root / "baskets" / f"baskets-{number:05d}.parquet", shoppers, part.tolist(), seed)
    columns: dict[str, list[Any]] = dict.fromkeys(SUBJECTS.names, [None] * len(order))
    splits = [shoppers[user].split for user in order]
    columns |= {"subject_id": order, "split": splits, "pretrain_split": splits}
    subjects = {name: pa.array(values, SUBJECTS.field(name).type) for name, values in columns.items()}
    write_table(pa.table(subjects), root / "subjects.parquet", SUBJECTS, made_by="test")
    lines = [
        f"{order_id(user, len(shopper.baskets))},{product}"
        for user, shopper in shoppers.items()
        for product in shopper.hidden_products or ()
    ]
    (root / "held_out.csv").write_text("\n".join(["order_id,product_id", *lines]) + "\n")
    return ShopFiles(root)


def _write_baskets(path: Path, shoppers: Shoppers, users: Sequence[int], seed: int | None) -> None:
    chance = np.random.default_rng(seed)
    rows = []
    for user in users:
        for number, (day, basket, flags) in enumerate(shoppers[user].orders()):
            products = list(basket) if seed is None else chance.permutation(basket).tolist()
            rows.append(
                {
                    "subject_id": user,
                    "basket_index": number,
                    "encounter_id": order_id(user, number),
                    "start": int(day * DAY_US),
                    "days_since_first": day,
                    "products": [int(product) for product in products],
                    "flags": flags,
                }
            )
    columns = {
        name: pa.array([row[name] for row in rows], BASKETS.field(name).type) for name in BASKETS.names
    }
    write_table(pa.table(columns), path, BASKETS, made_by="test")


def random_shoppers(
    seed: int, users: int = 30, products: int = 40, longest: int = 8, first_product: int = 100
) -> dict[int, Shopper]:
    """Return users 1 … n of all splits, most of them test users with a hidden order; half of what they buy repeats."""
    chance = np.random.default_rng(seed)
    shoppers = {}
    for user in range(1, users + 1):
        favourites = chance.choice(products, 6, replace=False)
        baskets = []
        for _ in range(int(chance.integers(2, longest + 1))):
            own = chance.choice(favourites, int(chance.integers(1, 5)), replace=False)
            others = chance.choice(products, int(chance.integers(0, 3)), replace=False)
            baskets.append(chance.permutation(np.unique(np.append(own, others)) + first_product).tolist())
        split = ("train", "train", "train", "val", "test", "test")[user % 6]
        hidden_products = baskets.pop() if split == "test" and len(baskets) > 2 else None
        shoppers[user] = Shopper(split, baskets, hidden_products)
    return shoppers
