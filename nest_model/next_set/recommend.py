"""Recommend next baskets to users who have nothing to be scored on: new ones, or a shop's own."""

import logging
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nest_model.next_set.baskets import Baskets, OrderRows, read_orders
from nest_model.next_set.card import read_card
from nest_model.next_set.frequent import Everybody, fill
from nest_model.next_set.list_tables import rankings_table
from nest_model.next_set.questions import Histories, LearningData, Questions, read_learning_data
from nest_model.next_set.run_state import backbone_hashes
from nest_model.next_set.system import Recommender, Tools, load_system
from nest_model.training.telemetry import Telemetry
from schemas.contract import write_table
from schemas.errors import NestError
from schemas.suppress import is_small, suppress_small
from schemas.tables.next_sets import RANKINGS

if TYPE_CHECKING:
    from lightning_fabric import Fabric

log = logging.getLogger("nest")

USERS_AT_ONCE = 20_000


def recommend(
    *,
    scored_run: Path,
    baskets: Path,
    subjects: Path,
    users: Path | None,
    top: int,
    out: Path,
    pretrained_model: Path | None,
    vocab: Path | None,
    fabric: "Callable[[], Fabric]",
    telemetry: Telemetry,
) -> None:
    """Write `recommendations.parquet`, under nbr_rankings/1: the best products of each user, best first.

    The system is fitted again, with the options, the first seed and the number of training users of the run it was
    scored in. Nobody knows the day of a basket to come: it is taken to come after the user's median gap, and so are the
    baskets that are learnt from.

    Args:
        scored_run: the folder that `next-basket` wrote.
        baskets: the shop's baskets/1, which the system learns from. subjects: its users and splits.
        users: baskets/1 of the users to recommend to; None: all users of the shop.
        top: products of each list; a shop with fewer has shorter lists.

    Raises:
        NestError: a table does not fit, the pretrained NEST is another than the scored run's, or no user has a basket
            of products the shop knows.
    """
    card = read_card(scored_run)
    # as in the scored run nothing of its targets is learnt from, so that the scores are those of this system
    data, validation = read_learning_data(
        baskets=baskets,
        subjects=subjects,
        target=card["target"],
        protocol=card["protocol"],
        query_time="expected",
    )
    with TemporaryDirectory() as scratch:  # for vectors of people, which nobody needs again
        tools = Tools(telemetry, fabric, Path(scratch), pretrained_model, vocab)
        recommender = _refit(card, data, validation, tools)
        _write_lists(recommender, data, card, read_orders(users or baskets), top, out, telemetry)


def _write_lists(
    recommender: Recommender,
    data: LearningData,
    card: dict[str, Any],
    orders: OrderRows,
    top: int,
    out: Path,
    telemetry: Telemetry,
) -> None:
    histories = histories_of(orders, data.training.product_id)
    progress = telemetry.progress("recommend", total=len(histories), unit="users")
    filler, parts = Everybody(data), []
    for block in histories.blocks(USERS_AT_ONCE):
        part = histories.take(np.arange(block.start, block.stop))
        questions = Histories(part, data.expected_days(part))
        ranking = recommender.rank(questions, top)
        ranking.refuse_invalid(card["system"])
        full = fill(ranking, filler.rank(questions, 2 * top))
        parts.append(rankings_table({card["seeds"][0]: full}, part.subject_id))
        progress.advance(len(part))
    write_table(pa.concat_tables(parts), out / "recommendations.parquet", RANKINGS, made_by="recommend")
    without = len(np.unique(orders.subject_id)) - len(histories)
    count = {} if is_small(len(histories)) else {"users": len(histories)}
    telemetry.result(count, without_a_basket=suppress_small(without))


def _refit(
    card: dict[str, Any], data: LearningData, validation: Questions | None, tools: Tools
) -> Recommender:
    """Return the system of a scored run, fitted as there on the shop as it is now.

    Raises:
        NestError: the pretrained NEST is another than the scored run's.
    """
    system, seed = load_system(card["system"]), card["seeds"][0]
    if system.reads_backbone and backbone_hashes(*tools.backbone(card["system"])) != card["backbone_sha256"]:
        raise NestError(
            f"{tools.pretrained_model}: not the pretrained NEST, or not the vocabulary, that {card['system']} was "
            "scored with; give those of the scored run, or score it again."
        )
    if system.traits.uses_query_time and card["query_time"] == "given":
        log.info(
            "%s: its scores are of baskets whose day was given; these lists expect it, as --query-time expected "
            "scores them",
            card["system"],
        )
    if sample_size := card["most_training_users"]:
        data = data.sample(sample_size, seed)
    return system(system.Options(**card["options"]), tools).fit(data, validation, seed)


def histories_of(orders: OrderRows, product_id: np.ndarray) -> Baskets:
    """Return all filled baskets of these users, without products that are not among the shop's.

    Args:
        product_id: i64 [products], ascending, the shop's.

    Raises:
        NestError: nothing is left.
    """
    orders_of_shop = orders.with_products(product_id)
    filled_orders = np.flatnonzero(orders_of_shop.sizes > 0)
    if not len(filled_orders):
        raise NestError("--users: no basket holds a product of the shop; the ids must be the shop's own.")
    return orders_of_shop.baskets(filled_orders, product_id)
