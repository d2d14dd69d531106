"""MIMIC-IV from raw tables to SeqSet shards: each asset is one step of `pipelines.mimic`."""

import dagster as dg

from assets.materialize import card_metadata, markdown_table, plainly, table_result
from assets.resources import Workspace
from pipelines import mimic
from pipelines.sources.ready import ready_mimic
from schemas.contract import read_table
from schemas.events import SUBJECTS
from schemas.splits import shown_splits

ETL = {"group_name": "mimic_etl", "owners": ["team:data-engineering"]}


@dg.asset(kinds={"csv"}, **ETL)
@plainly
def mimic_raw(workspace: Workspace) -> dg.MaterializeResult:
    """The input: MIMIC-IV `hosp` tables and crosswalks found where the settings say, or made (synthetic)."""
    layout = workspace.layout("mimic")
    source = ready_mimic(workspace.settings, layout)
    card = mimic.inspect_raw(source, layout)
    hashes = [{"file": name, "SHA-256": value[:16]} for name, value in card.hashes.items()]
    return dg.MaterializeResult(
        metadata={
            "found_in": dg.MetadataValue.path(source.hosp),
            "crosswalks": dg.MetadataValue.path(source.crosswalks),
            **card_metadata(card),
            "hashes": dg.MetadataValue.md(markdown_table(hashes)),
        },
        data_version=dg.DataVersion(card.version),
    )


@dg.asset(deps=[mimic_raw], kinds={"polars", "parquet"}, **ETL)
@plainly
def mimic_subjects(workspace: Workspace) -> dg.MaterializeResult:
    """One row per patient: birth, death, sex, and the split that holds for everything."""
    layout = workspace.layout("mimic")
    card = mimic.extract_subjects(workspace.mimic_source(), layout, workspace.settings.rules)
    splits = shown_splits(read_table(layout.subjects, SUBJECTS))
    sizes = {f"split_{name}": rows for name, rows in splits.task.items()}
    sizes |= {f"pretrain_split_{name}": rows for name, rows in splits.pretrain.items()}
    return table_result(card, layout.subjects, **sizes)


@dg.asset(deps=[mimic_raw], kinds={"polars", "parquet"}, **ETL)
@plainly
def mimic_encounters(workspace: Workspace) -> dg.MaterializeResult:
    """One row per admission: start, end, death, and the attributes subgroups are formed by."""
    layout = workspace.layout("mimic")
    card = mimic.extract_encounters(workspace.mimic_source(), layout)
    return table_result(card, layout.encounters)


@dg.asset(deps=[mimic_raw, mimic_subjects, mimic_encounters], kinds={"polars", "parquet"}, **ETL)
@plainly
def mimic_events(workspace: Workspace) -> dg.MaterializeResult:
    """Diagnoses, procedures, drugs given and laboratory values: when each happened, and when it could be known."""
    layout = workspace.layout("mimic")
    card = mimic.extract_events(workspace.mimic_source(), layout, workspace.settings.rules)
    return table_result(card, layout.events)


@dg.asset(deps=[mimic_raw, mimic_subjects, mimic_events], kinds={"polars", "parquet"}, **ETL)
@plainly
def mimic_drug_lookup(workspace: Workspace) -> dg.MaterializeResult:
    """Drug name → ATC, learnt from the prescriptions of the fitted-on patients."""
    layout = workspace.layout("mimic")
    card = mimic.fit_drug_lookup(workspace.mimic_source(), layout, workspace.settings.rules)
    return table_result(card, layout.drug_lookup)


@dg.asset(
    deps=[mimic_subjects, mimic_encounters, mimic_events, mimic_drug_lookup],
    kinds={"polars", "parquet"},
    **ETL,
)
@plainly
def mimic_vocab(workspace: Workspace) -> dg.MaterializeResult:
    """Every token with its count, its parent and, for laboratory deciles, its cuts."""
    layout = workspace.layout("mimic")
    card = mimic.fit_vocab(layout, workspace.settings.rules)
    return table_result(card, layout.vocab)


@dg.asset(
    deps=[mimic_subjects, mimic_encounters, mimic_events, mimic_drug_lookup, mimic_vocab],
    kinds={"polars", "parquet"},
    **ETL,
)
@plainly
def mimic_seqset(workspace: Workspace) -> dg.MaterializeResult:
    """SeqSet shards: one row per admission, its tokens in order, and the data card of the corpus."""
    from nest_model import pictures  # matplotlib: only where it draws

    layout = workspace.layout("mimic")
    card = mimic.write_seqset(layout, workspace.settings.rules)
    return table_result(card, layout.seqset, pictures.of_seqset(card))


MIMIC_ASSETS = [
    mimic_raw,
    mimic_subjects,
    mimic_encounters,
    mimic_events,
    mimic_drug_lookup,
    mimic_vocab,
    mimic_seqset,
]
