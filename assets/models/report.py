"""The assets of the pages: one for each cohort, and the report over all of a source."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

import dagster as dg

from assets.metadata import pictures_metadata
from assets.models.common import flags, model_card, numbers
from assets.resources import Workspace
from assets.runtime.child_process import run_nest_model
from assets.runtime.code_version import code_version
from assets.runtime.materialize import plainly
from assets.runtime.step_cache import once
from schemas.cards import COHORT_STEPS, StepCard
from schemas.errors import ContractError
from schemas.layout import Layout
from schemas.sources import sources


def report(source: str, cohorts: list[str]) -> dg.AssetsDefinition:
    """Return the asset `<source>_report` over the models of these cohorts."""
    about = "One self-contained page and `metrics.json`: every model, every metric with its interval, the data card."
    return _page(source, source, cohorts, "report", {"cohorts": ",".join(cohorts)}, about)


def cohort_report(source: str, cohort: str) -> dg.AssetsDefinition:
    """Return the asset `<cohort>_report`: the page of one cohort's models."""
    about = (
        f"One self-contained page on {cohort}: for whom, who was left out, every model and metric with its "
        "interval, calibration, net benefit, subgroups, what the models look at, limits."
    )
    return _page(source, cohort, [cohort], "cohort-report", {"cohort": cohort}, about)


def _page(
    source: str, name: str, cohorts: list[str], command: str, of: Mapping[str, str], about: str
) -> dg.AssetsDefinition:
    """Return the asset `<name>_report`, made by a command of the model's that is told what it is `of`."""

    @dg.asset(
        name=f"{name}_report",
        deps=[
            f"{source}_nest",  # what it says of the tables is in `options`: the graph stays one that can be read
            *(f"{cohort}_{what}" for cohort in cohorts for what in COHORT_STEPS if what != "report"),
        ],
        group_name=f"{source}_report",
        kinds={"html"},
        code_version=code_version("nest_model.report"),
        description=about,
        owners=["team:research"],
    )
    @plainly
    def page(
        context: dg.AssetExecutionContext, workspace: Workspace, pipes: dg.PipesSubprocessClient
    ) -> dg.MaterializeResult:
        from nest_model.report import previews

        layout = workspace.layout(source)
        out, options = layout.report(name), {**of, "preset": workspace.settings.preset}
        reads = {**options, "tables": _versions(layout, ("raw", *sources()[source].tables))}

        def make() -> StepCard:
            arguments = flags({**options, "root": layout.root})
            return model_card(run_nest_model(context, pipes, out, command, *arguments))

        card = once(layout, [out], reads, make)
        return dg.MaterializeResult(
            metadata={
                "report": dg.MetadataValue.path(out / "report.html"),
                **pictures_metadata(previews.of_report(out)),
                **numbers(card),
            },
            data_version=dg.DataVersion(card.version),
        )

    return page


def _versions(layout: Layout, steps: Sequence[str]) -> dict[str, str]:
    """Return the version of what each of these steps wrote; a step without a card is left out."""
    versions = {}
    for step in steps:
        with suppress(ContractError):
            versions[step] = StepCard.read(layout.cards, step).version
    return versions
