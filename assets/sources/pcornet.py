"""A PCORnet CDM from extracted tables to SeqSet shards: each asset is one step of `pipelines.sources.pcornet.steps`."""

from functools import partial
from typing import Any

import dagster as dg

from assets.metadata import input_result, subjects_result, table_result
from assets.resources import Workspace
from assets.runtime.code_version import code_version
from assets.runtime.materialize import plainly
from assets.runtime.step_cache import WITHOUT_SPLITS, once
from pipelines.inputs.pcornet import extract_newest_cdm, input_files, made_with, ready_pcornet
from pipelines.sources.pcornet import corpus as pcornet_corpus
from pipelines.sources.pcornet import steps as pcornet
from schemas.cards import StepCard

ETL = {"group_name": "pcornet_etl", "owners": ["team:data-engineering"]}
CODE, CORPUS = (
    code_version("pipelines.sources.pcornet.steps"),
    code_version("pipelines.sources.pcornet.corpus"),
)
UNORDERED = {"set-position": "none"}
"""What a model of these sets is told: an encounter's codes have no order inside."""


@dg.asset(kinds={"duckdb", "parquet"}, code_version=code_version("pipelines.inputs.pcornet"), **ETL)
@plainly
def pcornet_raw(workspace: Workspace) -> dg.MaterializeResult:
    """The input: the eleven tables of a CDM out of a database, or of files; unset, of a synthetic one in DuckDB."""
    layout, settings = workspace.layout("pcornet"), workspace.settings
    extract_newest_cdm(settings, layout)

    def make() -> StepCard:
        card = pcornet.inspect_raw(ready_pcornet(settings, layout), layout, settings.allowed_birth_dates)
        is_synthetic = settings.pcornet_dir is None and settings.pcornet_database is None
        return card.model_copy(update={"synthetic": is_synthetic})

    card = once(layout, input_files(settings, layout), made_with(settings), make)
    return input_result(card, found_in=workspace.pcornet_source().folder)


@dg.asset(deps=[pcornet_raw], kinds={"polars", "parquet"}, code_version=CODE, **ETL)
@plainly
def pcornet_subjects(workspace: Workspace) -> dg.MaterializeResult:
    """One row per child born from 1999 to 2024, tested on where the day of birth is 17 to 24."""
    layout, settings, source = workspace.layout("pcornet"), workspace.settings, workspace.pcornet_source()
    size = {"subjects_per_bucket": settings.subjects_per_bucket}
    reads: dict[str, Any] = size | settings.rules.model_dump(include={"pretrain_split"})
    reads |= pcornet.refuse_other_salt(source, layout)

    def make() -> StepCard:
        return pcornet.extract_subjects(source, layout, settings.rules, **size)

    files = input_files(settings, layout)
    card = once(layout, [layout.subjects, layout.buckets], reads, make, source=files)
    return subjects_result(card, layout.subjects)


@dg.asset(deps=[pcornet_raw], kinds={"polars", "parquet"}, code_version=CODE, **ETL)
@plainly
def pcornet_encounters(workspace: Workspace) -> dg.MaterializeResult:
    """One row per encounter: start, end, type, how it ended, and the attributes subgroups are formed by."""
    layout, settings, source = workspace.layout("pcornet"), workspace.settings, workspace.pcornet_source()
    reads, files = settings.model_dump(include={"pcornet_unlinked"}), input_files(settings, layout)
    reads |= pcornet.refuse_other_salt(source, layout)
    make = partial(pcornet.extract_encounters, source, layout, unlinked=settings.pcornet_unlinked)
    card = once(layout, [layout.encounters], reads, make, source=files)
    return table_result(card, layout.encounters)


@dg.asset(
    deps=[pcornet_raw, pcornet_subjects, pcornet_encounters],
    kinds={"polars", "parquet"},
    code_version=CODE,
    **ETL,
)
@plainly
def pcornet_events(workspace: Workspace) -> dg.MaterializeResult:
    """Diagnoses, procedures, drugs, results, vital signs, vaccines: when each happened, and when it was known."""
    from nest_model.report import previews

    layout, settings, source = workspace.layout("pcornet"), workspace.settings, workspace.pcornet_source()
    make = partial(pcornet.extract_events, source, layout)
    reads, files = pcornet.refuse_other_salt(source, layout), input_files(settings, layout)
    card = once(layout, [layout.events], reads, make, source=files, only=WITHOUT_SPLITS)
    return table_result(card, layout.events, previews.of_events(card))


@dg.asset(
    deps=[pcornet_subjects, pcornet_encounters, pcornet_events],
    kinds={"polars", "parquet"},
    code_version=CORPUS,
    **ETL,
)
@plainly
def pcornet_vocab(workspace: Workspace) -> dg.MaterializeResult:
    """Every token with its count and, for values in deciles, its cuts in each unit."""
    layout, rules = workspace.layout("pcornet"), workspace.settings.rules
    make = partial(pcornet_corpus.fit_vocab, layout, rules)
    card = once(layout, [layout.vocab, layout.cuts], rules.model_dump(), make)
    return table_result(card, layout.vocab)


@dg.asset(
    deps=[pcornet_subjects, pcornet_encounters, pcornet_events, pcornet_vocab],
    kinds={"polars", "parquet"},
    code_version=CORPUS,
    **ETL,
)
@plainly
def pcornet_seqset(workspace: Workspace) -> dg.MaterializeResult:
    """SeqSet shards: one row per encounter before the 18th birthday, its tokens by kind and code."""
    from nest_model.report import previews

    layout, rules = workspace.layout("pcornet"), workspace.settings.rules
    make = partial(pcornet_corpus.write_seqset, layout, rules)
    card = once(layout, [layout.seqset], rules.model_dump(), make)
    return table_result(card, layout.seqset, previews.of_seqset(card))


PCORNET_ASSETS = [
    pcornet_raw,
    pcornet_subjects,
    pcornet_encounters,
    pcornet_events,
    pcornet_vocab,
    pcornet_seqset,
]
