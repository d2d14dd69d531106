"""Instacart from raw files to next baskets: shards as every source has them, and NEST asked what a user buys next."""

import json
from functools import partial

import dagster as dg

from assets.checks import source_checks
from assets.metadata import input_result, pictures_metadata, subjects_result, table_result
from assets.models.training import COMMAND, MODELS, flags, model_card, pretrained
from assets.resources import Workspace
from assets.runtime.child_process import run_nest_model
from assets.runtime.code_version import code_version
from assets.runtime.materialize import plainly
from assets.runtime.step_cache import once
from pipelines.inputs.instacart import input_files, made_with, ready_instacart
from pipelines.reading.tables import find_file
from pipelines.sources.instacart import corpus as instacart_corpus
from pipelines.sources.instacart import steps as instacart
from schemas.cards import StepCard
from schemas.expectations import BASKET_SUITES
from schemas.io.hashing import file_sha256
from schemas.io.verify import verified
from schemas.markdown import markdown_table

ETL = {"group_name": "instacart_etl", "owners": ["team:data-engineering"]}
CODE, CORPUS = (
    code_version("pipelines.sources.instacart.steps"),
    code_version("pipelines.sources.instacart.corpus"),
)

BASKETS = {"set-position": "none", "max-sets": 100}
"""What a model of baskets is told: a basket has no order inside, and Instacart knows 100 orders of a user at most."""


@dg.asset(kinds={"csv"}, code_version=code_version("pipelines.inputs.instacart"), **ETL)
@plainly
def instacart_raw(workspace: Workspace) -> dg.MaterializeResult:
    """The input: Instacart's orders, order_products and products where the settings say, or made (synthetic)."""
    layout, settings = workspace.layout("instacart"), workspace.settings

    def make() -> StepCard:
        card = instacart.inspect_raw(ready_instacart(settings, layout), layout)
        return card.model_copy(update={"synthetic": settings.instacart_dir is None})

    card = once(layout, input_files(settings, layout), made_with(settings), make)
    return input_result(card, found_in=workspace.instacart_source().folder)


@dg.asset(deps=[instacart_raw], kinds={"polars", "parquet"}, code_version=CODE, **ETL)
@plainly
def instacart_subjects(workspace: Workspace) -> dg.MaterializeResult:
    """One row per user, in the provider's own split: whose last order is `test`, and whose is `train`."""
    layout, source = workspace.layout("instacart"), workspace.instacart_source()
    size = {"subjects_per_bucket": workspace.settings.subjects_per_bucket}
    card = once(
        layout,
        [layout.subjects, layout.buckets],
        size,
        lambda: instacart.extract_subjects(source, layout, **size),
        source=input_files(workspace.settings, layout),
    )
    return subjects_result(card, layout.subjects)


@dg.asset(deps=[instacart_raw], kinds={"polars", "parquet"}, code_version=CODE, **ETL)
@plainly
def instacart_encounters(workspace: Workspace) -> dg.MaterializeResult:
    """One row per order: when it was, counted in days from the user's first, and whether its products are withheld."""
    layout, source = workspace.layout("instacart"), workspace.instacart_source()
    files = input_files(workspace.settings, layout)
    make = partial(instacart.extract_encounters, source, layout)
    card = once(layout, [layout.encounters], {}, make, source=files)
    return table_result(card, layout.encounters)


@dg.asset(
    deps=[instacart_raw, instacart_subjects, instacart_encounters],
    kinds={"polars", "parquet"},
    code_version=CODE,
    **ETL,
)
@plainly
def instacart_events(workspace: Workspace) -> dg.MaterializeResult:
    """One row per product in an order whose products are known."""
    layout, source = workspace.layout("instacart"), workspace.instacart_source()
    files = input_files(workspace.settings, layout)
    make = partial(instacart.extract_events, source, layout)
    card = once(layout, [layout.events], {}, make, source=files)
    return table_result(card, layout.events)


@dg.asset(
    deps=[instacart_subjects, instacart_encounters, instacart_events],
    kinds={"polars", "parquet"},
    code_version=CORPUS,
    **ETL,
)
@plainly
def instacart_vocab(workspace: Workspace) -> dg.MaterializeResult:
    """Every product with its count in what may be fitted on: training users, and the past of test users."""
    layout, rules = workspace.layout("instacart"), workspace.settings.rules
    card = once(layout, [layout.vocab], rules.model_dump(), lambda: instacart_corpus.fit_vocab(layout, rules))
    return table_result(card, layout.vocab)


@dg.asset(
    deps=[instacart_subjects, instacart_encounters, instacart_events, instacart_vocab],
    kinds={"polars", "parquet"},
    code_version=CORPUS,
    **ETL,
)
@plainly
def instacart_seqset(workspace: Workspace) -> dg.MaterializeResult:
    """SeqSet shards: one row per order, its products in no order, and the data card of the corpus."""
    from nest_model.report import previews

    layout, rules = workspace.layout("instacart"), workspace.settings.rules
    card = once(
        layout, [layout.seqset], rules.model_dump(), lambda: instacart_corpus.write_seqset(layout, rules)
    )
    return table_result(card, layout.seqset, previews.of_seqset(card))


@dg.asset(
    deps=["instacart_raw", "instacart_subjects", "instacart_vocab", "instacart_seqset", "instacart_nest"],
    group_name="instacart_report",
    kinds={"pytorch"},
    code_version=code_version("nest_model.next_set.score", "nest_model.training.device", started_by=COMMAND),
    **MODELS,
)
@plainly
def instacart_next_basket(
    context: dg.AssetExecutionContext, workspace: Workspace, pipes: dg.PipesSubprocessClient
) -> dg.MaterializeResult:
    """What the test users buy next: NEST, asked by an appended query set, beside their most frequent products."""
    from nest_model.next_set import pictures

    layout, settings, raw = (
        workspace.layout("instacart"),
        workspace.settings,
        workspace.instacart_source().folder,
    )
    out = layout.report("instacart_next_basket")
    paths = {"model": layout.model("instacart_nest"), "seqset": layout.seqset, "subjects": layout.subjects}
    options = {"target": settings.instacart_target, "threads": 2}
    held_out = find_file(raw, "held_out") if settings.instacart_target == "held_out" else None
    reads = options | ({"held_out": file_sha256(held_out)} if held_out else {})

    def make() -> StepCard:
        arguments = flags({**options, **paths, "vocab": layout.vocab, "raw": raw})
        return model_card(run_nest_model(context, pipes, out, "next-set", *arguments))

    card = once(layout, [out], reads, make)
    metrics = json.loads(verified(out / "metrics.json").read_text())
    return dg.MaterializeResult(
        metadata={
            "asked": metrics["target"],
            "users": metrics["users"],
            "scores": dg.MetadataValue.md(markdown_table(pictures.rows(metrics))),
            **pictures_metadata({"Next baskets": pictures.overview(metrics)}),
            **{name: dg.MetadataValue.float(value) for name, value in card.metrics.items()},
        },
        data_version=dg.DataVersion(card.version),
    )


INSTACART_ASSETS = [
    instacart_raw,
    instacart_subjects,
    instacart_encounters,
    instacart_events,
    instacart_vocab,
    instacart_seqset,
    pretrained("instacart", BASKETS),
    instacart_next_basket,
]

INSTACART_CHECKS = source_checks("instacart", BASKET_SUITES)
