"""Instacart's files as subjects, encounters and events: a user is a subject, an order an encounter, a product an event.

The files have no dates. An order starts on 2000-01-01 plus the sum of the gaps before it; orders of the same day start
microseconds apart, in the order of order_number.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.engine.drop import RowsAndFlow
from pipelines.events.split import assign_split
from schemas.cards import Flow
from schemas.errors import InputError
from schemas.tables.events import ENCOUNTERS, EVENTS, HIDDEN

EVAL_SETS = ("prior", "train", "test")
# training users whose hash is at least this are for validation
VALIDATION_START = 0.95
FIRST_DAY = pl.datetime(2000, 1, 1, time_unit="us")
MICROSECONDS_PER_DAY = 86_400_000_000
MAX_HISTORY_DAYS = 36_500
# the largest share of lines that may name an unknown order or product
MAX_UNKNOWN_SHARE = 0.001
REASONS = ("unknown_order", "hidden_order", "unknown_product")


def refuse_invalid_orders(orders: pl.DataFrame) -> None:
    """Refuse orders that cannot be sorted within their user, or whose eval_set does not say if they are visible."""
    is_last = pl.col("order_number") == pl.col("order_number").max().over("user_id")
    days = pl.col("days_since_prior_order")
    faults = orders.select(
        _count_repeats("order_id").alias("column order_id: {} of {} rows repeat another row's"),
        _count_repeats("user_id", "order_number").alias(
            "column order_number: {} of {} rows repeat another order of their user"
        ),
        (~pl.col("eval_set").is_in(EVAL_SETS))
        .sum()
        .alias("column eval_set: {} of {} rows hold neither prior, train nor test"),
        ((pl.col("eval_set") != "prior") & ~is_last)
        .sum()
        .alias("column eval_set: {} of {} rows are train or test, but not the last order of their user"),
        (~days.is_between(0, MAX_HISTORY_DAYS))
        .sum()
        .alias("column days_since_prior_order: {} of {} values are not a number of days from 0 to 100 years"),
    ).row(0, named=True)
    messages = [text.format(f"{count:,}", f"{orders.height:,}") for text, count in faults.items() if count]
    if messages:
        raise InputError(f"orders: {'; '.join(messages)}. Give the whole table as it was published.")


def _count_repeats(*columns: str) -> pl.Expr:
    return (
        pl.len() - pl.struct(columns).n_unique()
        if len(columns) > 1
        else pl.len() - pl.col(*columns).n_unique()
    )


def subjects(orders: pl.DataFrame) -> pl.DataFrame:
    """Return subjects/1 in the provider's own split.

    A user whose last order is of the test set is a test user; of the others, a share by hash is for validation.
    """
    users = orders.group_by("user_id").agg(is_test=(pl.col("eval_set") == "test").any()).sort("user_id")
    by_hash = assign_split(users["user_id"], VALIDATION_START, 1.0)
    split = pl.when("is_test").then(pl.lit("test")).otherwise(by_hash)
    unknown = {name: pl.lit(None) for name in ("birth_date", "death_date", "sex")}
    return users.select(subject_id="user_id", **unknown, split=split, pretrain_split=split)


def encounters(orders: pl.DataFrame) -> RowsAndFlow:
    """Return encounters/1, one per order, sorted by (user_id, order_number); an order lasts one microsecond.

    A missing gap counts as 0 days, and is counted in the flow unless the order is a user's first. A gap given for a
    first order is ignored and counted too.
    """
    in_order = orders.sort("user_id", "order_number")
    is_first = pl.col("user_id") != pl.col("user_id").shift(1).fill_null(pl.col("user_id") - 1)
    gap = pl.col("days_since_prior_order")
    orders_with_gaps = in_order.with_columns(
        is_first=is_first,
        gap_us=pl.when(~is_first)
        .then(gap.fill_null(0) * MICROSECONDS_PER_DAY)
        .otherwise(0)
        .round()
        .cast(pl.Int64),
    )
    counts = orders_with_gaps.select(
        gap_not_given=(~pl.col("is_first") & gap.is_null()).sum(),
        gap_before_a_first_order=(pl.col("is_first") & gap.is_not_null()).sum(),
    ).row(0, named=True)
    since_first = pl.col("gap_us").cum_sum().over("user_id")
    # the position among orders with the same start, so that each starts after the previous one
    place = pl.int_range(pl.len()).over("user_id", "since_first")
    start = FIRST_DAY + pl.duration(microseconds=pl.col("since_first") + place)
    stays = (
        orders_with_gaps.with_columns(since_first=since_first)
        .with_columns(start=start)
        .select(
            subject_id="user_id",
            encounter_id="order_id",
            start="start",
            end=pl.col("start") + pl.duration(microseconds=1),
            type=pl.when(pl.col("eval_set") == "test").then(pl.lit(HIDDEN)),
            discharge_status=pl.lit(None),
            died=pl.lit(False),
            death_time=pl.lit(None),
            age_years=pl.lit(None),
            race=pl.lit(None),
            insurance=pl.lit(None),
            admission_type=pl.lit(None),
        )
    )
    return stays.select(ENCOUNTERS.names), Flow(
        source_rows=orders.height, kept_rows=stays.height, noted=counts
    )


@dataclass(frozen=True)
class KnownIds:
    """The ids of all orders and products, to look up order lines in."""

    order_id: NDArray[np.int64]  # ascending
    subject_id: NDArray[np.int64]  # of each order
    is_hidden: NDArray[np.bool_]  # of each order
    product_id: NDArray[np.int64]  # ascending

    @classmethod
    def from_tables(cls, stays: pl.DataFrame, products: pl.Series) -> "KnownIds":
        """Build the index from encounters/1 and the column of product ids."""
        by_id = stays.select("encounter_id", "subject_id", hidden=pl.col("type").eq_missing(HIDDEN)).sort(
            "encounter_id"
        )
        order_ids, subject_ids, is_hidden = (by_id[name].to_numpy() for name in by_id.columns)
        return cls(order_ids, subject_ids, is_hidden, products.unique().sort().to_numpy())


def select_visible_lines(lines: pl.DataFrame, ids: KnownIds) -> RowsAndFlow:
    """Return the lines of visible orders and known products, and the flow.

    Returns:
        subject_id, encounter_id, product_id, add_to_cart_order; repeated lines are kept.
    """
    order, has_order = _find_ids(ids.order_id, lines["order_id"])
    _, has_product = _find_ids(ids.product_id, lines["product_id"])
    is_hidden = has_order & ids.is_hidden[order]
    is_selected = has_order & ~is_hidden & has_product
    masks = (~has_order, is_hidden, has_order & ~is_hidden & ~has_product)
    rows = lines.select(
        pl.Series("subject_id", ids.subject_id[order]),
        encounter_id="order_id",
        product_id="product_id",
        add_to_cart_order="add_to_cart_order",
    )
    kept_rows = rows if is_selected.all() else rows.filter(pl.Series(is_selected))
    counts = {reason: int(np.count_nonzero(mask)) for reason, mask in zip(REASONS, masks, strict=True)}
    return kept_rows, Flow(source_rows=lines.height, kept_rows=kept_rows.height, dropped=counts)


def _find_ids(
    sorted_ids: NDArray[np.int64], column: pl.Series
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    values = column.to_numpy()
    place = np.minimum(np.searchsorted(sorted_ids, values), len(sorted_ids) - 1)
    return place, sorted_ids[place] == values


def refuse_unknown_ids(table: str, flow: Flow) -> None:
    """Refuse a table in which more than MAX_UNKNOWN_SHARE of the lines name an order or a product in no table."""
    for reason, column in (("unknown_order", "order_id"), ("unknown_product", "product_id")):
        if flow.dropped[reason] > MAX_UNKNOWN_SHARE * flow.source_rows:
            fraction = f"{flow.dropped[reason]:,} of {flow.source_rows:,}"
            raise InputError(
                f"{table}: column {column}: {dropped_sentence(reason, fraction)} "
                f"(more than {MAX_UNKNOWN_SHARE:.1%}). Give all tables of one release, each complete."
            )


def dropped_sentence(reason: str, fraction: str) -> str:
    """Return a sentence on how many lines were dropped for a reason; `fraction` is exact or suppressed."""
    predicates = {
        "unknown_order": "name an order that is not in orders",
        "hidden_order": "are of a test order, whose products are withheld",
        "unknown_product": "name a product that is not in products",
    }
    return f"{fraction} rows {predicates[reason]}"


def item_events(lines: pl.DataFrame, stays: pl.DataFrame) -> pl.DataFrame:
    """Return events/1 of order lines: timed at the order's start, ranked by product_id.

    Args:
        lines: subject_id, encounter_id, product_id, add_to_cart_order (which becomes the value).
        stays: encounters/1, with at least the orders of these lines.
    """
    product = pl.col("product_id").cast(pl.String)
    lines_with_start = lines.join(
        stays.select("encounter_id", "start"), on="encounter_id", how="left", maintain_order="left"
    )
    return lines_with_start.select(
        "subject_id",
        "encounter_id",
        time="start",
        available_at="start",
        kind=pl.lit("ITEM"),
        vocab=pl.lit("product_id"),
        code=product,
        mapped=product,
        value=pl.col("add_to_cart_order").cast(pl.Float64),
        unit=pl.lit(None, pl.String),
        rank=pl.col("product_id").cast(pl.Int64),
    ).select(EVENTS.names)
