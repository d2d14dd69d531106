"""The monitor: whether the patients scored are like those the models were made with, on one page of the UI."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np

from assets.metadata import pictures_metadata
from assets.models.common import RESEARCH_TEAM
from assets.resources import Workspace
from assets.runtime.materialize import with_clear_errors
from nest_model.data.predictions import read_predictions
from nest_model.evaluation import drift
from schemas.contract import read_table
from schemas.io.hashing import file_sha256
from schemas.layout import Layout
from schemas.markdown import markdown_table
from schemas.suppress import SMALLEST_SHOWN, suppress_count
from schemas.tables.events import SUBJECTS
from schemas.tables.labels import read_task
from schemas.tables.vocab import VOCAB

UNKNOWN_LIMIT, TOKEN_LIMIT, SCORE_LIMIT = 0.05, 0.1, 0.25
"""Share of unknown tokens, bits of the tokens' divergence, and stability index of scores from which the check warns."""
COLUMNS = ("scored", "since", "days of earlier models", "stability index", "observed", "predicted")
"""What the page says of each cohort; a dash where it is not known or would reveal a small count."""
FEWEST = SMALLEST_SHOWN * drift.BINS
"""Patients from which the deciles of scores are shown: fewer leave bins that are small counts."""


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
        from nest_model.report import figures  # matplotlib: only where it draws

        layout = workspace.layout("mimic")
        patients = len(read_table(layout.new_patients.subjects, SUBJECTS))
        tokens, faults = _tokens(layout) if patients >= SMALLEST_SHOWN else ({}, [])
        page, pictures = ScoresPage(faults=faults), {}
        for cohort in cohorts:
            page.add(layout, cohort)
        for cohort, shares in page.shares.items():
            title = f"{cohort}: scores by decile of the reference, per cent"
            figure = figures.histogram(shares, title=title, x="decile", y="% of new patients")
            pictures[title] = figures.ui_png(figure)
        for note in page.notes:
            context.log.warning(note)
        yield dg.MaterializeResult(
            metadata={
                "new patients": suppress_count(patients),
                **{name: float(f"{value:.3g}") for name, value in tokens.items()},
                "scores": dg.MetadataValue.md(markdown_table(page.rows)),
                "notes": dg.MetadataValue.md("\n".join(f"- {note}" for note in page.notes) or "–"),
                **pictures_metadata(pictures),
            }
        )
        yield dg.AssetCheckResult(
            check_name="nothing_drifted",
            passed=not page.faults,
            severity=dg.AssetCheckSeverity.WARN,
            description=" ".join(page.faults) or "nothing drifted",
        )

    return monitor


def _tokens(layout: Layout) -> tuple[dict[str, float], list[str]]:
    """Return the shares of unknown tokens and the divergence of tokens, and what of them is past its limit."""
    vocabulary = len(read_table(layout.vocab, VOCAB))
    before, new = (drift.token_counts(each.seqset, vocabulary) for each in (layout, layout.new_patients))
    if not new.sum():
        return {}, []
    metadata = {
        "unknown_tokens_share": drift.unknown_share(new),
        "unknown_tokens_share_before": drift.unknown_share(before),
        "token_divergence_bits": drift.jensen_shannon(before, new),
    }
    faults = []
    if metadata["unknown_tokens_share"] > max(UNKNOWN_LIMIT, 2 * metadata["unknown_tokens_share_before"]):
        faults.append(f"{metadata['unknown_tokens_share']:.1%} of the new patients' tokens are unknown.")
    if metadata["token_divergence_bits"] > TOKEN_LIMIT:
        faults.append(f"Tokens differ by {metadata['token_divergence_bits']:.2f} bits (limit {TOKEN_LIMIT}).")
    return metadata, faults


@dataclass
class ScoresPage:
    """What the page shows of the scores: a row for each cohort, the per cent of scores by decile, and sentences."""

    rows: list[dict[str, str]] = field(default_factory=list)
    shares: dict[str, list[tuple[str, int | None]]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)  # what is past its limit
    notes: list[str] = field(default_factory=list)  # what keeps a number from being there

    def add(self, layout: Layout, cohort: str) -> None:
        """Add the scores of a cohort by its present model."""
        row = {"cohort": cohort} | dict.fromkeys(COLUMNS, "–")
        self.rows.append(row)
        reference_file = layout.report(f"{cohort}_nest") / "predictions.parquet"
        weights, folder = layout.model(f"{cohort}_nest") / "model.safetensors", layout.scores(cohort)
        if not all(path.exists() for path in (folder, reference_file, weights)):
            return
        if read_task(reference_file).label_type != "bool":
            return
        scores = drift.new_scores(folder, file_sha256(weights))
        reference = read_predictions(reference_file).of("test").probability[:, 0]
        row |= {"scored": suppress_count(len(scores)), "since": scores.since or "–"}
        row["days of earlier models"] = str(scores.days_of_others)
        self._add_outcomes(row, scores, layout.labels(cohort))
        if len(scores) >= FEWEST and len(reference) >= FEWEST:
            self._add_drift(row, reference, scores.score)

    def _add_outcomes(self, row: dict[str, str], scores: drift.NewScores, labels: Path) -> None:
        if not labels.exists():
            self.notes.append(
                f"{labels}: no such file, so that outcomes are not compared; materialize {row['cohort']}_labels."
            )
        elif outcome := drift.calibration(scores, labels):
            row |= {"observed": f"{outcome.observed:.1%}", "predicted": f"{outcome.predicted:.1%}"}

    def _add_drift(self, row: dict[str, str], reference: np.ndarray, scores: np.ndarray) -> None:
        index = drift.stability_index(reference, scores)
        row["stability index"] = f"{index:.2f}"
        shares = drift.decile_shares(reference, scores)
        self.shares[row["cohort"]] = [
            (str(i + 1), round(100 * share) if share * len(scores) >= SMALLEST_SHOWN else None)
            for i, share in enumerate(shares)
        ]
        if index > SCORE_LIMIT:
            self.faults.append(
                f"{row['cohort']}: scores have shifted, stability index {index:.2f} (limit {SCORE_LIMIT})."
            )
