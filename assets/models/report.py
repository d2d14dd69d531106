"""The assets of the HTML reports: one for each cohort, and one over all cohorts of a source."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from assets.cohort_files import name_of_cohort_job
from assets.metadata import page_metadata, pictures_metadata
from assets.models.common import RESEARCH_TEAM, flags, metrics_metadata, result_card
from assets.resources import Workspace
from assets.runtime.child_process import run_nest_model
from assets.runtime.code_version import code_version
from assets.runtime.experiments import cards_of
from assets.runtime.materialize import with_clear_errors
from assets.runtime.step_cache import ALSO_READS, MAY_READ, ONLY_AFTER, cached_step, input_contents
from schemas.cards import COHORT_STEPS, StepCard
from schemas.cohort import Cohort
from schemas.io.verify import verified
from schemas.layout import Layout
from schemas.sources import sources

STEPS_BEFORE = ("leak_audit", "nest", "lightgbm", "yardsticks")
"""The steps of a cohort that its page waits for, each with an arrow.

The models lie upstream of the yardsticks, but Dagster orders a run only by the arrows between the assets it makes: a
run of a model and the page alone needs one of its own.
"""


def report_asset(source: str, cohorts: Sequence[Cohort]) -> dg.AssetsDefinition:
    """Return the asset `<source>_report` over the models of these cohorts."""
    about = "One self-contained page and `metrics.json`: every model, every metric with its interval, the data card."
    names = [cohort.cohort for cohort in cohorts]
    page_flags = {"cohorts": ",".join(names), **_titles(cohorts)}
    if thresholds := {cohort.cohort: cohort.thresholds for cohort in cohorts if cohort.thresholds}:
        page_flags["thresholds"] = json.dumps(thresholds)
    # It scores every cohort again. The longest page begins first, so that the others are made beside it.
    first = {"dagster/priority": "1"}
    return _page_asset(source, source, names, "report", page_flags, about, op_tags=first)


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
    source: str,
    name: str,
    cohorts: list[str],
    command: str,
    page_flags: Mapping[str, str],
    about: str,
    op_tags: Mapping[str, str] | None = None,
) -> dg.AssetsDefinition:
    """Return the asset `<name>_report`: a page that a command of `nest_model` writes.

    The page over several cohorts leaves out those that have not all their models yet.
    """
    names_of_codes = [f"{source}_code_names"] if "code_names" in sources()[source].tables else []

    @dg.asset(
        name=f"{name}_report",
        # the report also reads the tables: their contents are in `reads`, which keeps the graph readable
        deps=[
            *([f"{cohort}_{step}" for cohort in cohorts for step in STEPS_BEFORE] or [f"{source}_nest"]),
            *names_of_codes,
        ],
        metadata={
            ONLY_AFTER: names_of_codes,  # of all tables the one that no other of its inputs comes after
            ALSO_READS: [
                f"{source}_nest",
                *(
                    f"{cohort}_{step}"
                    for cohort in cohorts
                    for step in COHORT_STEPS[:-1]
                    if step not in STEPS_BEFORE
                ),
            ],
            MAY_READ: [f"{source}_{step}" for step in _source_steps(source)],
        },
        group_name=f"{source}_report",
        kinds={"html"},
        code_version=code_version("nest_model.report"),
        description=about,
        owners=RESEARCH_TEAM,
        op_tags=op_tags,
    )
    @with_clear_errors
    def page(
        context: dg.AssetExecutionContext, workspace: Workspace, pipes: dg.PipesSubprocessClient
    ) -> dg.MaterializeResult[Any]:
        from nest_model.report import previews, results_markdown

        layout = workspace.experiment_layout(source)
        ready = [cohort for cohort in cohorts if not _missing_steps(layout, cohort)] or cohorts
        for cohort in sorted({*cohorts} - {*ready}):
            context.log.warning(
                f"{cohort} is not on the page: {', '.join(_missing_steps(layout, cohort))} not made yet or failed; "
                f"run the job {name_of_cohort_job(cohort)}."
            )
        out, options = layout.report(name), {**page_flags, "preset": workspace.settings.preset}
        if "cohorts" in options:
            options["cohorts"] = ",".join(ready)
        reads = {**options, "tables": input_contents(layout, _finished_steps(layout, source), {})}

        def make() -> StepCard:
            arguments = flags({**options, "root": layout.root})
            return result_card(run_nest_model(context, pipes, out, command, *arguments))

        card = cached_step(layout, [out], reads, make, partial=ready != cohorts)
        results = results_markdown(json.loads(verified(out / "metrics.json").read_text()))
        return dg.MaterializeResult(
            metadata={
                **page_metadata(out / "report.html"),
                "results_table": dg.MetadataValue.md(results),
                **pictures_metadata(previews.report_previews(out)),
                **metrics_metadata(card),
            },
            data_version=dg.DataVersion(card.version),
        )

    return page


def _missing_steps(layout: Layout, cohort: str) -> list[str]:
    """Return the assets that a page on a cohort reads and that were not made yet, or failed."""
    steps = (f"{cohort}_{step}" for step in COHORT_STEPS if step != "report")
    return [step for step in steps if not _is_made(layout, step)]


def _is_made(layout: Layout, step: str) -> bool:
    cards = cards_of(layout, step)
    return StepCard.path(cards, step).exists() and StepCard.read(cards, step).failure is None


def _finished_steps(layout: Layout, source: str) -> list[str]:
    """Return the steps of a source's tables that have a card; the page names those that have none."""
    return [step for step in _source_steps(source) if StepCard.path(layout.of_source.cards, step).exists()]


def _source_steps(source: str) -> tuple[str, ...]:
    return ("raw", *sources()[source].tables)
