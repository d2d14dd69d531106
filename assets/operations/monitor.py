"""The monitor: whether the patients scored are like those the models were made with, on one page of the UI."""

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from assets.metadata import pictures_metadata
from assets.models.common import RESEARCH_TEAM
from assets.resources import Workspace
from assets.runtime.materialize import with_clear_errors
from schemas.markdown import markdown_table
from schemas.suppress import suppress_count


def monitor_asset(cohorts: Sequence[str], group: str) -> dg.AssetsDefinition:
    """Return the asset `mimic_monitor` over the scores of these cohorts, with the check that warns."""

    @dg.asset(
        name="mimic_monitor",
        deps=["mimic_new_seqset", *(f"{cohort}_scores" for cohort in cohorts)],
        group_name=group,
        kinds={"python"},
        check_specs=[
            dg.AssetCheckSpec(
                "nothing_drifted",
                asset="mimic_monitor",
                description="Tokens and scores of new patients are distributed as those the models were made with.",
            )
        ],
        owners=RESEARCH_TEAM,
    )
    @with_clear_errors
    def monitor(
        context: dg.AssetExecutionContext, workspace: Workspace
    ) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        """New patients beside those of the models: unknown tokens, drift of tokens and scores, outcomes once known."""
        from nest_model.report import previews  # matplotlib: only where it draws
        from nest_model.report.monitor import MonitorPage

        page = MonitorPage.read(workspace.layout("mimic"), cohorts)
        for note in page.notes:
            context.log.warning(note)
        yield dg.MaterializeResult(
            metadata={
                "new patients": suppress_count(page.patients),
                **{name: float(f"{value:.3g}") for name, value in page.tokens.items()},
                "scores": dg.MetadataValue.md(markdown_table(page.rows)),
                "notes": dg.MetadataValue.md("\n".join(f"- {note}" for note in page.notes) or "–"),
                **pictures_metadata(previews.monitor_previews(page.shares)),
            }
        )
        yield dg.AssetCheckResult(
            check_name="nothing_drifted",
            passed=not page.faults,
            severity=dg.AssetCheckSeverity.WARN,
            description=" ".join(page.faults) or "nothing drifted",
        )

    return monitor
