"""The monitor: whether the patients scored are like those the models were made with, on one page of the UI."""

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from assets.metadata import pictures_metadata
from assets.models.common import RESEARCH_TEAM
from assets.resources import Workspace
from assets.runtime.materialize import with_clear_errors
from nest_model.data.predictions import read_predictions
from nest_model.evaluation import drift
from schemas.contract import read_table
from schemas.layout import Layout
from schemas.markdown import markdown_table
from schemas.suppress import SMALLEST_SHOWN, suppress_count
from schemas.tables.events import SUBJECTS
from schemas.tables.labels import read_task
from schemas.tables.vocab import VOCAB

UNKNOWN_LIMIT, TOKEN_LIMIT, SCORE_LIMIT = 0.05, 0.1, 0.25
"""Share of unknown tokens, bits of the tokens' divergence, and stability index of scores from which the check warns."""
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
    def monitor(workspace: Workspace) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        """New patients beside those of the models: unknown tokens, drift of tokens and scores, outcomes once known."""
        from nest_model.report import figures  # matplotlib: only where it draws

        layout = workspace.layout("mimic")
        patients = len(read_table(layout.new_patients.subjects, SUBJECTS))
        tokens, faults = _tokens(layout) if patients >= SMALLEST_SHOWN else ({}, [])
        rows, bars = [], {}
        for cohort in cohorts:
            row, shares, fault = _scores(layout, cohort)
            rows.append(row)
            faults += fault
            if shares is not None:
                title = f"{cohort}: scores by decile of the reference, per cent"
                bars[title] = figures.histogram(shares, title=title, x="decile", y="% of new patients")
        yield dg.MaterializeResult(
            metadata={
                "new patients": suppress_count(patients),
                **{name: float(f"{value:.3g}") for name, value in tokens.items()},
                "scores": dg.MetadataValue.md(markdown_table(rows)),
                **pictures_metadata({title: figures.png(figure) for title, figure in bars.items()}),
            }
        )
        yield dg.AssetCheckResult(
            check_name="nothing_drifted",
            passed=not faults,
            severity=dg.AssetCheckSeverity.WARN,
            description=" ".join(faults) or "nothing drifted",
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


def _scores(
    layout: Layout, cohort: str
) -> tuple[dict[str, str], list[tuple[str, int | None]] | None, list[str]]:
    """Return a row about a cohort's scores, the per cent of them in each decile, and what is past its limit."""
    row = {"cohort": cohort, "scored": "–", "stability index": "–", "observed": "–", "predicted": "–"}
    reference_file, folder = layout.report(f"{cohort}_nest") / "predictions.parquet", layout.scores(cohort)
    if not folder.exists() or not reference_file.exists() or read_task(reference_file).label_type != "bool":
        return row, None, []
    scores, reference = (
        drift.new_scores(folder),
        read_predictions(reference_file).of("test").probability[:, 0],
    )
    row["scored"] = suppress_count(len(scores))
    if outcome := drift.calibration(scores, layout.labels(cohort)):
        row |= {"observed": f"{outcome.observed:.1%}", "predicted": f"{outcome.predicted:.1%}"}
    if len(scores) < FEWEST or len(reference) < FEWEST:
        return row, None, []
    values = scores["score"].to_numpy()
    index = drift.stability_index(reference, values)
    row["stability index"] = f"{index:.2f}"
    shares = drift.decile_shares(reference, values)
    bars = [
        (str(i + 1), round(100 * share) if share * len(values) >= SMALLEST_SHOWN else None)
        for i, share in enumerate(shares)
    ]
    faults = [f"{cohort}: scores have shifted, stability index {index:.2f} (limit {SCORE_LIMIT})."] * (
        index > SCORE_LIMIT
    )
    return row, bars, faults
