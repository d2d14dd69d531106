"""MIMIC-IV written as a MEDS dataset."""

from typing import Any

import dagster as dg

from assets.metadata import card_metadata, column_schema
from assets.resources import Workspace
from assets.runtime.code_version import code_version
from assets.runtime.materialize import with_clear_errors
from assets.runtime.step_cache import cached_step
from assets.sources.common import OWNERS
from pipelines.sources.meds import export as meds
from schemas.nouns import with_noun
from schemas.suppress import disclosing, suppress_count
from schemas.tables.meds import MEDS_DATA


@dg.asset(
    deps=["mimic_subjects", "mimic_encounters", "mimic_events", "mimic_drug_lookup", "mimic_code_names"],
    group_name="mimic_meds",
    kinds={"polars", "parquet"},
    code_version=code_version("pipelines.sources.meds.export"),
    owners=OWNERS,
)
@with_clear_errors
def mimic_meds(workspace: Workspace) -> dg.MaterializeResult[Any]:
    """MIMIC-IV as a MEDS 0.4 dataset, for any tool that reads MEDS; values, both times and stays travel beside it."""
    layout = workspace.layout("mimic")
    card = cached_step(layout, [layout.meds], {}, lambda: meds.write_meds(layout))
    with disclosing(card.synthetic):
        rows, counts = with_noun(suppress_count(card.counts["rows"]), "row"), card_metadata(card)
    dg.AssetExecutionContext.get().log.info(f"{rows} under {card.contract}")
    return dg.MaterializeResult(
        metadata={
            "dagster/row_count": card.counts["rows"],
            "dagster/column_schema": column_schema(MEDS_DATA),
            "dagster/uri": layout.meds.as_uri(),
            "contract": card.contract,
            **counts,
        },
        data_version=dg.DataVersion(card.version),
    )
