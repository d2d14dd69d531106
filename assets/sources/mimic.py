"""MIMIC-IV from raw tables to SeqSet shards: each asset is one step of `pipelines.sources.mimic.steps`."""

from functools import partial

import dagster as dg

from assets.metadata import input_result, subjects_result, table_result
from assets.resources import Workspace
from assets.runtime.code_version import code_version
from assets.runtime.materialize import plainly
from assets.runtime.step_cache import WITHOUT_SPLITS, once
from pipelines.corpus import build as corpus
from pipelines.inputs.mimic import input_files, made_with, ready_mimic
from pipelines.sources.mimic import steps as mimic
from pipelines.sources.mimic.tables import TABLE_OF_KIND
from schemas.cards import StepCard

ETL = {"group_name": "mimic_etl", "owners": ["team:data-engineering"]}
CODE = code_version("pipelines.sources.mimic.steps")


@dg.asset(kinds={"csv"}, code_version=code_version("pipelines.inputs.mimic"), **ETL)
@plainly
def mimic_raw(workspace: Workspace) -> dg.MaterializeResult:
    """The input: MIMIC-IV `hosp` tables and crosswalks found where the settings say, or made (synthetic)."""
    layout, settings = workspace.layout("mimic"), workspace.settings

    def make() -> StepCard:
        card = mimic.inspect_raw(ready_mimic(settings, layout), layout)
        return card.model_copy(update={"synthetic": settings.mimic_dir is None})

    card = once(layout, input_files(settings, layout), made_with(settings), make)
    source = workspace.mimic_source()
    return input_result(card, found_in=source.hosp, crosswalks=source.crosswalks)


@dg.asset(deps=[mimic_raw], kinds={"polars", "parquet"}, code_version=CODE, **ETL)
@plainly
def mimic_subjects(workspace: Workspace) -> dg.MaterializeResult:
    """One row per patient: birth, death, sex, and the split that holds for everything."""
    layout, settings, source = workspace.layout("mimic"), workspace.settings, workspace.mimic_source()
    files = input_files(settings, layout)
    size = {"subjects_per_bucket": settings.subjects_per_bucket}
    reads = size | settings.rules.model_dump(include={"pretrain_split"})

    def make() -> StepCard:
        return mimic.extract_subjects(source, layout, settings.rules, **size)

    card = once(layout, [layout.subjects, layout.buckets], reads, make, source=files)
    return subjects_result(card, layout.subjects)


@dg.asset(deps=[mimic_raw], kinds={"polars", "parquet"}, code_version=CODE, **ETL)
@plainly
def mimic_encounters(workspace: Workspace) -> dg.MaterializeResult:
    """One row per admission: start, end, death, and the attributes subgroups are formed by."""
    layout, source = workspace.layout("mimic"), workspace.mimic_source()
    files = input_files(workspace.settings, layout)
    make = partial(mimic.extract_encounters, source, layout)
    card = once(layout, [layout.encounters], {}, make, source=files)
    return table_result(card, layout.encounters)


@dg.asset(
    deps=[mimic_raw, mimic_subjects, mimic_encounters], kinds={"polars", "parquet"}, code_version=CODE, **ETL
)
@plainly
def mimic_events(workspace: Workspace) -> dg.MaterializeResult:
    """Diagnoses, procedures, drugs given and laboratory values: when each happened, and when it could be known."""
    from nest_model.report import previews

    layout, settings, source = workspace.layout("mimic"), workspace.settings, workspace.mimic_source()
    reads, files = settings.rules.model_dump(include={"med_link"}), input_files(settings, layout)
    make = partial(mimic.extract_events, source, layout, settings.rules)
    card = once(layout, [layout.events], reads, make, source=files, only=WITHOUT_SPLITS)
    return table_result(card, layout.events, previews.of_events(card))


@dg.asset(
    deps=[mimic_raw, mimic_subjects, mimic_encounters], kinds={"polars", "parquet"}, code_version=CODE, **ETL
)
@plainly
def mimic_drug_lookup(workspace: Workspace) -> dg.MaterializeResult:
    """Drug name → ATC, learnt from the prescriptions of the fitted-on patients."""
    layout, settings, source = workspace.layout("mimic"), workspace.settings, workspace.mimic_source()
    reads, files = settings.rules.model_dump(include={"fit_on"}), input_files(settings, layout)
    make = partial(mimic.fit_drug_lookup, source, layout, settings.rules)
    card = once(layout, [layout.drug_lookup], reads, make, source=files)
    return table_result(card, layout.drug_lookup)


@dg.asset(
    deps=[mimic_subjects, mimic_encounters, mimic_events, mimic_drug_lookup],
    kinds={"polars", "parquet"},
    code_version=code_version("pipelines.corpus.build"),
    **ETL,
)
@plainly
def mimic_vocab(workspace: Workspace) -> dg.MaterializeResult:
    """Every token with its count and, for laboratory deciles, its cuts."""
    layout, rules = workspace.layout("mimic"), workspace.settings.rules
    reads = rules.model_dump()  # all: they are told beside the vocabulary
    card = once(layout, [layout.vocab], reads, lambda: corpus.fit_vocab(layout, rules))
    return table_result(card, layout.vocab)


@dg.asset(
    deps=[mimic_subjects, mimic_encounters, mimic_events, mimic_drug_lookup, mimic_vocab],
    kinds={"polars", "parquet"},
    code_version=code_version("pipelines.corpus.build", "pipelines.sources.mimic.tables"),
    **ETL,
)
@plainly
def mimic_seqset(workspace: Workspace) -> dg.MaterializeResult:
    """SeqSet shards: one row per admission, its tokens in order, and the data card of the corpus."""
    from nest_model.report import previews

    layout, rules = workspace.layout("mimic"), workspace.settings.rules
    make = partial(corpus.write_seqset, layout, rules, tables=TABLE_OF_KIND)
    card = once(layout, [layout.seqset], rules.model_dump(), make)
    return table_result(card, layout.seqset, previews.of_seqset(card))


MIMIC_ASSETS = [
    mimic_raw,
    mimic_subjects,
    mimic_encounters,
    mimic_events,
    mimic_drug_lookup,
    mimic_vocab,
    mimic_seqset,
]
