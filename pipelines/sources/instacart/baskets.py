"""Baskets by product, for systems that recommend products rather than tokens: events/1 grouped by order."""

from functools import partial
from pathlib import Path

import polars as pl

from pipelines.corpus import shards
from pipelines.corpus.seqsets import number_sets
from pipelines.engine.buckets import Buckets
from pipelines.engine.workers import each_bucket
from pipelines.events.store import read_events, scan_table
from pipelines.sources.instacart.steps import KIND
from schemas.cards import StepCard
from schemas.contract import contract_name, write_table
from schemas.io.folders import replace_folder
from schemas.layout import Layout
from schemas.tables.baskets import BASKETS
from schemas.tables.events import ENCOUNTERS


def write_baskets(layout: Layout) -> StepCard:
    """Write baskets/1, a file per bucket of users: each order's distinct products in the order they went into the cart.

    An order without visible products is an empty basket, as it is an empty set in the shards.
    """
    with replace_folder(layout.baskets) as folder:
        counts = list(
            each_bucket("baskets", partial(write_bucket, layout, folder), len(Buckets.read(layout)))
        )
    baskets, filled_baskets, lines = (sum(column) for column in zip(*counts, strict=True))
    card = StepCard(
        step="baskets",
        contract=contract_name(BASKETS),
        counts={"baskets": baskets, "filled_baskets": filled_baskets, "products_in_baskets": lines},
    )
    return shards.write_card(card, layout)


def write_bucket(layout: Layout, folder: Path, bucket: int) -> tuple[int, int, int]:
    """Write the baskets of one bucket; return how many there are, how many hold a product, and their products."""
    inside = Buckets.read(layout).is_in(bucket)
    orders = number_sets(scan_table(layout.encounters, ENCOUNTERS).filter(inside)).collect()
    lines = pl.DataFrame(read_events(layout.events, KIND, bucket, "encounter_id", "rank", "value"))
    contents = (
        lines.rename({"rank": "product", "value": "place"})
        .group_by("encounter_id", "product")
        .agg(pl.col("place").min())
        .sort("encounter_id", "place", "product", nulls_last=True)
        .group_by("encounter_id", maintain_order=True)
        .agg(products="product")
    )
    baskets = (
        orders.join(contents, on="encounter_id", how="left", maintain_order="left")
        .with_columns(pl.col("products").fill_null([]), basket_index="set_index")
        .select(BASKETS.names)
    )
    path = folder / f"baskets-{bucket:05d}.parquet"
    write_table(baskets.to_arrow(), path, BASKETS, made_by="write_baskets", by_worker=True)
    sizes = baskets["products"].list.len()
    return baskets.height, int((sizes > 0).sum()), int(sizes.sum() or 0)
