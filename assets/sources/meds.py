"""MEDS both ways: MIMIC-IV written as a MEDS dataset, and any MEDS dataset from its files to SeqSet shards."""

from functools import partial

import dagster as dg

from assets.metadata import card_metadata, column_schema, input_result, subjects_result, table_result
from assets.resources import Workspace
from assets.runtime.code_version import code_version
from assets.runtime.materialize import plainly
from assets.runtime.step_cache import once
from pipelines.corpus import build as corpus
from pipelines.sources.meds import export as meds
from pipelines.sources.meds import steps as from_meds
from schemas.tables.meds import MEDS_DATA

OWNERS = {"owners": ["team:data-engineering"]}
ETL = {"group_name": "meds_etl", **OWNERS}
CODE = code_version("pipelines.sources.meds.steps")
COLUMN = "meds_encounter_column"


@dg.asset(
    deps=["mimic_subjects", "mimic_encounters", "mimic_events", "mimic_drug_lookup"],
    group_name="mimic_meds",
    kinds={"polars", "parquet"},
    code_version=code_version("pipelines.sources.meds.export"),
    **OWNERS,
)
@plainly
def mimic_meds(workspace: Workspace) -> dg.MaterializeResult:
    """MIMIC-IV as a MEDS 0.4 dataset, for any tool that reads MEDS; values, both times and stays travel beside it."""
    layout = workspace.layout("mimic")
    card = once(layout, [layout.meds], {}, lambda: meds.write_meds(layout))
    dg.AssetExecutionContext.get().log.info(f"{card.counts['rows']:,} rows under {card.contract}")
    return dg.MaterializeResult(
        metadata={
            "dagster/row_count": card.counts["rows"],
            "dagster/column_schema": column_schema(MEDS_DATA),
            "dagster/uri": layout.meds.as_uri(),
            "contract": card.contract,
            **card_metadata(card),
        },
        data_version=dg.DataVersion(card.version),
    )


@dg.asset(deps=[mimic_meds], kinds={"parquet"}, code_version=CODE, **ETL)
@plainly
def meds_raw(workspace: Workspace) -> dg.MaterializeResult:
    """The input: the MEDS dataset the settings name, or the one `mimic_meds` wrote, held against what MEDS asks."""
    layout, dataset = workspace.layout("meds"), workspace.meds_dataset()
    reads = workspace.settings.model_dump(include={COLUMN})
    card = once(layout, list(dataset.folders), reads, lambda: from_meds.inspect_raw(dataset, layout))
    return input_result(card, found_in=dataset.root)


@dg.asset(deps=[meds_raw], kinds={"polars", "parquet"}, code_version=CODE, **ETL)
@plainly
def meds_subjects(workspace: Workspace) -> dg.MaterializeResult:
    """One row per subject: birth, death, sex, and the split: the dataset's own where it has one."""
    layout, dataset, settings = workspace.layout("meds"), workspace.meds_dataset(), workspace.settings
    size = settings.subjects_per_bucket
    reads = {**settings.rules.model_dump(include={"pretrain_split"}), "subjects_per_bucket": size}
    card = once(
        layout,
        [layout.subjects, layout.buckets],
        reads,
        lambda: from_meds.extract_subjects(dataset, layout, settings.rules, subjects_per_bucket=size),
        source=dataset.folders,
    )
    return subjects_result(card, layout.subjects)


@dg.asset(deps=[meds_raw, meds_subjects], kinds={"polars", "parquet"}, code_version=CODE, **ETL)
@plainly
def meds_encounters(workspace: Workspace) -> dg.MaterializeResult:
    """One row per encounter: by the dataset's encounter column, or by gaps in time."""
    layout, dataset, settings = workspace.layout("meds"), workspace.meds_dataset(), workspace.settings
    hours = settings.meds_gap_hours
    card = once(
        layout,
        [layout.encounters],
        settings.model_dump(include={COLUMN, "meds_gap_hours"}),
        lambda: from_meds.extract_encounters(dataset, layout, gap_hours=hours),
        source=dataset.folders,
    )
    return table_result(card, layout.encounters)


@dg.asset(
    deps=[meds_raw, meds_subjects, meds_encounters], kinds={"polars", "parquet"}, code_version=CODE, **ETL
)
@plainly
def meds_events(workspace: Workspace) -> dg.MaterializeResult:
    """Every row with a time that is about neither a subject nor an encounter, its kind by its code's prefix."""
    from nest_model.report import previews

    layout, dataset, settings = workspace.layout("meds"), workspace.meds_dataset(), workspace.settings
    rules = settings.rules
    reads = {**rules.model_dump(include={"fit_on", "min_count"}), **settings.model_dump(include={COLUMN})}
    make = partial(from_meds.extract_events, dataset, layout, rules)
    card = once(layout, [layout.events], reads, make, source=dataset.folders)
    return table_result(card, layout.events, previews.of_events(card))


@dg.asset(
    deps=[meds_subjects, meds_encounters, meds_events],
    kinds={"polars", "parquet"},
    code_version=code_version("pipelines.corpus.build"),
    **ETL,
)
@plainly
def meds_vocab(workspace: Workspace) -> dg.MaterializeResult:
    """Every token with its count and, for values in deciles, its cuts."""
    layout, rules = workspace.layout("meds"), workspace.settings.rules
    reads = rules.model_dump()
    card = once(layout, [layout.vocab], reads, lambda: corpus.fit_vocab(layout, rules))
    return table_result(card, layout.vocab)


@dg.asset(
    deps=[meds_subjects, meds_encounters, meds_events, meds_vocab],
    kinds={"polars", "parquet"},
    code_version=code_version("pipelines.corpus.build"),
    **ETL,
)
@plainly
def meds_seqset(workspace: Workspace) -> dg.MaterializeResult:
    """SeqSet shards: one row per encounter, its tokens in order, and the data card of the corpus."""
    from nest_model.report import previews

    layout, rules = workspace.layout("meds"), workspace.settings.rules
    reads = rules.model_dump()
    card = once(layout, [layout.seqset], reads, lambda: corpus.write_seqset(layout, rules))
    return table_result(card, layout.seqset, previews.of_seqset(card))


MEDS_ASSETS = [mimic_meds, meds_raw, meds_subjects, meds_encounters, meds_events, meds_vocab, meds_seqset]
