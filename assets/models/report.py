"""The assets of the HTML reports: one for each cohort, and one over all cohorts of a source."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from assets.metadata import pictures_metadata
from assets.models.common import RESEARCH_TEAM, flags, metrics_metadata, result_card
from assets.resources import Workspace
from assets.runtime.child_process import run_nest_model
from assets.runtime.code_version import code_version
from assets.runtime.materialize import with_clear_errors
from assets.runtime.step_cache import cached_step, input_contents
from schemas.cards import COHORT_STEPS, StepCard
from schemas.layout import Layout
from schemas.sources import sources


def report_asset(source: str, cohorts: list[str]) -> dg.AssetsDefinition:
    """Return the asset `<source>_report` over the models of these cohorts."""
    about = "One self-contained page and `metrics.json`: every model, every metric with its interval, the data card."
    return _page_asset(source, source, cohorts, "report", {"cohorts": ",".join(cohorts)}, about)


def cohort_report_asset(source: str, cohort: str) -> dg.AssetsDefinition:
    """Return the asset `<cohort>_report`: the page of one cohort's models."""
    about = (
        f"One self-contained page on {cohort}: which patients, who was excluded, every model and metric with its "
        "interval, calibration, net benefit, subgroups, what the models look at, limits."
    )
    return _page_asset(source, cohort, [cohort], "cohort-report", {"cohort": cohort}, about)


def _page_asset(
    source: str, name: str, cohorts: list[str], command: str, page_flags: Mapping[str, str], about: str
) -> dg.AssetsDefinition:
    """Return the asset `<name>_report`: a page that a command of `nest_model` writes."""

    @dg.asset(
        name=f"{name}_report",
        deps=[
            # the report also reads the tables: their contents are in `reads`, which keeps the graph readable
            f"{source}_nest",
            *(f"{cohort}_{step}" for cohort in cohorts for step in COHORT_STEPS if step != "report"),
        ],
        group_name=f"{source}_report",
        kinds={"html"},
        code_version=code_version("nest_model.report"),
        description=about,
        owners=RESEARCH_TEAM,
    )
    @with_clear_errors
    def page(
        context: dg.AssetExecutionContext, workspace: Workspace, pipes: dg.PipesSubprocessClient
    ) -> dg.MaterializeResult[Any]:
        from nest_model.report import previews

        layout = workspace.layout(source)
        out, options = layout.report(name), {**page_flags, "preset": workspace.settings.preset}
        reads = {**options, "tables": input_contents(layout, _finished_steps(layout, source), {})}

        def make() -> StepCard:
            arguments = flags({**options, "root": layout.root})
            return result_card(run_nest_model(context, pipes, out, command, *arguments))

        card = cached_step(layout, [out], reads, make)
        return dg.MaterializeResult(
            metadata={
                "report": dg.MetadataValue.path(out / "report.html"),
                **pictures_metadata(previews.report_previews(out)),
                **metrics_metadata(card),
            },
            data_version=dg.DataVersion(card.version),
        )

    return page


def _finished_steps(layout: Layout, source: str) -> list[str]:
    """Return the steps of a source's tables that have a card; the page names those that have none."""
    steps = ("raw", *sources()[source].tables)
    return [step for step in steps if (layout.cards / f"{step}.card.json").exists()]
