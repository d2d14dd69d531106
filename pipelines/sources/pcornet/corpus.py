"""The vocabulary and the sets of children: `pipelines.corpus.build` up to the 18th birthday, with cuts by unit."""

import polars as pl

from pipelines.corpus import build as corpus
from pipelines.events.store import scan_table
from pipelines.sources.pcornet.steps import TABLES_OF_KIND
from schemas.cards import StepCard
from schemas.layout import Layout
from schemas.rules import DataRules
from schemas.tables.events import AGE_LIMIT_YEARS, ENCOUNTERS


def fit_vocab(layout: Layout, rules: DataRules) -> StepCard:
    """Write vocab/1 and cuts/1, fitted on encounters before the 18th birthday; see `corpus.fit_vocab`."""
    grown_up = (
        scan_table(layout.encounters, ENCOUNTERS)
        .filter(pl.col("age_years") >= AGE_LIMIT_YEARS)
        .select("encounter_id")
        .collect()["encounter_id"]
    )
    return corpus.fit_vocab(layout, rules, excluded_encounters=grown_up, by_unit=True)


def write_seqset(layout: Layout, rules: DataRules, frozen: Layout | None = None) -> StepCard:
    """Write seqset/2 shards: unordered sets up to the 18th birthday; see `corpus.write_seqset`."""
    return corpus.write_seqset(
        layout, rules, frozen, tables=TABLES_OF_KIND, sets=corpus.SetRules(AGE_LIMIT_YEARS, by_code=True)
    )
