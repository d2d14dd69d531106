"""Recommend next baskets to users who have nothing to be scored on: new ones, or a shop's own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from nest_model.next_set.baskets import Baskets, OrderRows, read_orders
from nest_model.next_set.frequent import Everybody, fill
from nest_model.next_set.questions import Histories, expected_days, read_shop
from nest_model.next_set.run import rankings_table
from nest_model.next_set.system import Tools, load_system
from nest_model.training.telemetry import Telemetry
from schemas.contract import write_table
from schemas.errors import NestError
from schemas.io.verify import verified
from schemas.suppress import suppress_small
from schemas.tables.next_sets import RANKINGS

if TYPE_CHECKING:
    from lightning_fabric import Fabric

USERS_AT_ONCE = 20_000


def recommend(
    *,
    scored: Path,
    baskets: Path,
    subjects: Path,
    users: Path | None,
    top: int,
    out: Path,
    pretrained: Path | None,
    vocab: Path | None,
    fabric: "Callable[[], Fabric]",
    telemetry: Telemetry,
) -> None:
    """Write `recommendations.parquet`, under nbr_rankings/1: the best products of each user, best first.

    The system is fitted again, with the options and the first seed of the run it was scored in; its next basket is
    taken to come after the user's median gap.

    Args:
        scored: the folder that `next-basket` wrote.
        baskets: the shop's baskets/1, which the system learns from. subjects: its users and splits.
        users: baskets/1 of the users to recommend to; None: all users of the shop.
        top: products of each list; a shop with fewer has shorter lists.

    Raises:
        NestError: a table does not fit, or no user has a basket of products the shop knows.
    """
    card = json.loads(verified(scored / "metrics.json").read_text())
    system = load_system(card["system"])
    shop = read_shop(baskets=baskets, subjects=subjects, target="last_visible", protocol=card["protocol"])
    tools = Tools(telemetry, fabric, out / "work", pretrained, vocab)
    fitted = system(system.Options(**card["options"]), tools).fit(
        shop.known, shop.validation, card["seeds"][0]
    )
    orders = read_orders(users or baskets)
    histories = histories_of(orders, shop.known.training.product_id)
    progress = telemetry.progress("recommend", total=len(histories), unit="users")
    filler, parts = Everybody(shop.known), []
    for block in histories.blocks(USERS_AT_ONCE):
        part = histories.take(np.arange(block.start, block.stop))
        histories_of_part = Histories(part, expected_days(part))
        ranking = fitted.rank(histories_of_part, top)
        ranking.refuse_invalid(card["system"])
        full = fill(ranking, filler.rank(histories_of_part, 2 * top))
        parts.append(rankings_table({card["seeds"][0]: full}, part.subject_id))
        progress.advance(len(part))
    write_table(pa.concat_tables(parts), out / "recommendations.parquet", RANKINGS, made_by="recommend")
    without = len(np.unique(orders.subject_id)) - len(histories)
    telemetry.result({"users": len(histories)}, without_a_basket=suppress_small(without))


def histories_of(orders: OrderRows, product_id: np.ndarray) -> Baskets:
    """Return all filled baskets of these users, without products that are not among the shop's.

    Args:
        product_id: i64 [products], ascending, the shop's.

    Raises:
        NestError: nothing is left.
    """
    orders_of_shop = orders.with_products(product_id)
    filled = np.flatnonzero(orders_of_shop.sizes > 0)
    if not len(filled):
        raise NestError("--users: no basket holds a product of the shop; the ids must be the shop's own.")
    return orders_of_shop.baskets(filled, product_id)
