"""The assets of the HTML reports: one for each cohort, and one over all cohorts of a source."""

import json
from collections.abc import Mapping, Sequence
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
from schemas.cohort import Cohort
from schemas.layout import Layout
from schemas.sources import sources


def report_asset(source: str, cohorts: Sequence[Cohort]) -> dg.AssetsDefinition:
    """Return the asset `<source>_report` over the models of these cohorts."""
    about = "One self-contained page and `metrics.json`: every model, every metric with its interval, the data card."
    names = [cohort.cohort for cohort in cohorts]
    page_flags = {"cohorts": ",".join(names), **_titles(cohorts)}
    return _page_asset(source, source, names, "report", page_flags, about)


def cohort_report_asset(source: str, cohort: Cohort) -> dg.AssetsDefinition:
    """Return the asset `<cohort>_report`: the page of one cohort's models."""
    about = (
        f"One self-contained page on {cohort.title or cohort.cohort}: which patients, every model and metric with "
        "its interval, thresholds, subgroups, calibration, net benefit, what the models look at, limits; and the "
        "TRIPOD+AI checklist, filled in from the run."
    )
    page_flags = {"cohort": cohort.cohort, **_titles([cohort])}
    if cohort.thresholds:
        page_flags["thresholds"] = ",".join(map(str, cohort.thresholds))
    return _page_asset(source, cohort.cohort, [cohort.cohort], "cohort-report", page_flags, about)


def _titles(cohorts: Sequence[Cohort]) -> dict[str, str]:
    """Return the flag that gives the pages the cohorts' titles; empty if none has one."""
    titles = {cohort.cohort: cohort.title for cohort in cohorts if cohort.title}
    return {"titles": json.dumps(titles)} if titles else {}


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
