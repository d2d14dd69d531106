"""The vocabulary and the sets of Instacart: `pipelines.corpus.build` without the orders that are prediction targets."""

import polars as pl

from pipelines.corpus import build as corpus
from pipelines.events.store import scan_table
from pipelines.sources.instacart.steps import KIND
from pipelines.sources.instacart.tables import ORDER_PRODUCTS
from schemas.cards import StepCard
from schemas.layout import Layout
from schemas.rules import DataRules
from schemas.tables.events import EVENTS, SUBJECTS


def fit_vocab(layout: Layout, rules: DataRules) -> StepCard:
    """Write vocab/1, fitted on the training users' orders and on the test users' visible orders before the last.

    This also holds under `fit_on: all`: no rules fit on an order that is a prediction target or on validation users.
    """
    users = scan_table(layout.subjects, SUBJECTS)
    train_users = users.filter(pl.col("split") != "val").select("subject_id").collect()["subject_id"]
    return corpus.fit_vocab(
        layout, rules, subjects=train_users, excluded_encounters=last_visible_orders(layout)
    )


def last_visible_orders(layout: Layout) -> pl.Series:
    """Return the encounter_id of each test user's last order that has visible products.

    One of the two prediction targets is this order. It is left out of the fit for both, so that both use the same
    vocabulary.
    """
    test_users = scan_table(layout.subjects, SUBJECTS).filter(pl.col("split") == "test").select("subject_id")
    last = (
        scan_table(layout.events, EVENTS)
        .join(test_users, on="subject_id", how="semi")
        .group_by("subject_id")
        .agg(pl.col("encounter_id").max_by("time"))
    )
    return last.collect(engine="streaming")["encounter_id"]


def write_seqset(layout: Layout, rules: DataRules) -> StepCard:
    """Write seqset/2 shards; see `corpus.write_seqset`."""
    return corpus.write_seqset(layout, rules, tables={KIND: ORDER_PRODUCTS})
