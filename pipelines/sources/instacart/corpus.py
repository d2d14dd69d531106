"""The vocabulary and the sets of a shop: what `pipelines.corpus.build` does, with the basket asked for held back."""

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
    """Write vocab/1: of the training users' orders and of what was visible of the test users' before the last.

    So under `fit_on: all`, too: what a user is asked for, or chosen by, is fitted on under no rules.
    """
    users = scan_table(layout.subjects, SUBJECTS)
    train_users = users.filter(pl.col("split") != "val").select("subject_id").collect()["subject_id"]
    return corpus.fit_vocab(
        layout, rules, subjects=train_users, excluded_encounters=last_visible_orders(layout)
    )


def last_visible_orders(layout: Layout) -> pl.Series:
    """Return the encounter_id of each test user's last order that holds something visible.

    It is what one target asks for; it is fitted on under neither, so that both read the same vocabulary.
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
    """Write seqset/1 shards; see `corpus.write_seqset`."""
    return corpus.write_seqset(layout, rules, tables={KIND: ORDER_PRODUCTS})
