"""The asset of a cohort's labels, and the asset that stands in for a cohort file that cannot be read."""

from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.parquet as pq

from assets.cohort_files import COHORT_FILES, FAULTS, OF_BAD_FILE, TO_MEND, name_of_asset_to_mend
from assets.metadata import column_schema, pictures_metadata
from assets.resources import Workspace
from assets.runtime.code_version import code_version
from assets.runtime.materialize import with_clear_errors
from assets.runtime.step_cache import cached_step
from pipelines.cohorts import write_empty_labels, write_labels
from schemas.cards import StepCard
from schemas.code_names import NO_NAMES, CodeNames
from schemas.cohort import Cohort, CohortError
from schemas.cohort.english import in_english
from schemas.errors import NestError
from schemas.label_counts import suppress_label_counts
from schemas.layout import Layout
from schemas.markdown import escape_markdown, markdown_table
from schemas.settings import Settings
from schemas.sources import sources
from schemas.suppress import disclosing
from schemas.tables.attrition import read_attrition, suppress_attrition

COHORT_FOLDER = COHORT_FILES


def labels_asset(source: str, cohort: Cohort) -> dg.AssetsDefinition:
    """Return the asset `<cohort>_labels`: one row per index encounter, and the attrition table."""

    @dg.asset(
        name=f"{cohort.cohort}_labels",
        deps=[f"{source}_{table}" for table in sources()[source].tables_for_cohorts],
        group_name=f"{source}_cohorts",
        kinds={"yaml", "parquet"},
        owners=["team:clinicians"],
        description=described(cohort, names_of(source)),
        code_version=f"{code_version('pipelines.cohorts')}-{cohort.sha256[:8]}",
    )
    @with_clear_errors
    def cohort_labels(workspace: Workspace) -> dg.MaterializeResult[Any]:
        layout, rules = workspace.layout(source), workspace.settings.rules
        folder = layout.cohort(cohort.cohort)
        reads = rules.model_dump(include={"clock", "fit_on"})

        def make() -> StepCard:
            try:
                return write_labels(cohort, layout, rules)
            except CohortError as fault:  # a fault in one cohort file must not stop a run of all cohorts
                dg.AssetExecutionContext.get().log.error(str(fault))
                return write_empty_labels(cohort, layout, rules, fault)

        return labels_result(cached_step(layout, [folder], reads, make), folder)

    return cohort_labels


@cache
def names_of(source: str) -> CodeNames:
    """Return the names of a source's codes as the UI was loaded; none if there are none that can be read."""
    with suppress(NestError):
        return CodeNames.read(Layout(Settings().data_folder / source).code_names)
    return NO_NAMES


def described(cohort: Cohort, names: CodeNames = NO_NAMES) -> str:
    """Return a cohort's title, what it is about, and its meaning in English, as Markdown."""
    title = f"**{escape_markdown(cohort.title)}**\n\n" if cohort.title else ""
    meaning = (
        f"  - {escape_markdown(sentence.removeprefix('  - '))}"
        if sentence.startswith("  - ")
        else f"- {escape_markdown(sentence)}"
        for sentence in in_english(cohort, names)[1:]
    )
    return "\n".join([f"{title}{escape_markdown(cohort.about)}\n", *meaning])


def labels_result(card: StepCard, folder: Path) -> dg.MaterializeResult[Any]:
    """Return the materialization of a label table, with small counts of patients suppressed."""
    from nest_model.report import previews

    steps = read_attrition(folder / "attrition.csv")
    with disclosing(card.synthetic):
        counts, attrition = suppress_label_counts(card.counts, steps), suppress_attrition(steps)
    dg.AssetExecutionContext.get().log.info(f"rows: {counts['rows']}, patients: {counts['subjects']}")
    file = folder / "labels.parquet"
    exact = {"dagster/row_count": card.counts["rows"]} if counts["rows"] == f"{card.counts['rows']:,}" else {}
    return dg.MaterializeResult(
        metadata={
            **exact,
            "dagster/column_schema": column_schema(pq.read_schema(file)),
            "dagster/uri": file.as_uri(),
            "contract": card.contract,
            **pictures_metadata(previews.attrition_previews(attrition)),
            "attrition": dg.MetadataValue.md(markdown_table(attrition)),
            "counts": dg.MetadataValue.md(
                markdown_table([{"": name, "count": n} for name, n in counts.items()])
            ),
        },
        data_version=dg.DataVersion(card.version),
    )


def unreadable_cohort_asset(source: str, name: str, error: CohortError) -> dg.AssetsDefinition:
    """Return an asset in place of a cohort file that cannot be read; its check fails with the faults of the file.

    The asset writes nothing and fails no run of other assets: these are made, and the run names the file at its end.
    The job of this cohort alone fails. The asset's name differs from that of the cohort's labels, so that no earlier
    success is on its page.
    """
    asset, message = name_of_asset_to_mend(name), str(error)

    @dg.asset(
        name=asset,
        group_name=f"{source}{TO_MEND}",
        kinds={"yaml", "unreadable"},
        owners=["team:clinicians"],
        description=f"{escape_markdown(message)}\n\nFix this cohort file, then press Reload definitions.",
        metadata={FAULTS: message},
        check_specs=[dg.AssetCheckSpec("cohort_file", asset=asset, description=message)],
        output_required=False,
    )
    @with_clear_errors
    def broken_cohort(context: dg.AssetExecutionContext) -> Iterator[dg.AssetCheckResult]:
        if OF_BAD_FILE in context.run.tags:
            raise error
        context.log.error(message)
        yield dg.AssetCheckResult(passed=False, description=message)

    return broken_cohort
