"""The monitor's numbers: whether the patients scored are like those the models were made with."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from nest_model.data.predictions import read_predictions
from nest_model.evaluation import drift
from schemas.contract import read_table
from schemas.io.hashing import file_sha256
from schemas.layout import Layout
from schemas.suppress import SMALLEST_SHOWN, suppress_count, suppress_parts
from schemas.tables.events import SUBJECTS
from schemas.tables.labels import read_task
from schemas.tables.vocab import VOCAB

UNKNOWN_LIMIT, TOKEN_LIMIT, SCORE_LIMIT = 0.05, 0.1, 0.25
"""Share of unknown tokens, bits of the tokens' divergence, and stability index of scores from which the check warns."""
COLUMNS = ("scored", "since", "days of earlier models", "stability index", "observed", "predicted")
"""What the page says of each cohort; a dash where it is not known or would reveal a small count."""
FEWEST = SMALLEST_SHOWN * drift.BINS
"""Patients from which the deciles of scores are shown: fewer leave bins that are small counts."""


@dataclass
class MonitorPage:
    """What the page shows: new patients, shares of tokens, a row for each cohort, scores by decile, and sentences."""

    patients: int = 0
    tokens: dict[str, float] = field(default_factory=dict)
    rows: list[dict[str, str]] = field(default_factory=list)
    shares: dict[str, list[tuple[str, int | None]]] = field(default_factory=dict)  # per cent; None: withheld
    faults: list[str] = field(default_factory=list)  # what is past its limit
    notes: list[str] = field(default_factory=list)  # what keeps a number from being there

    @classmethod
    def read(cls, layout: Layout, cohorts: Sequence[str]) -> "MonitorPage":
        """Compare the new patients of a source, and their scores for these cohorts, with those of its models."""
        page = cls(patients=len(read_table(layout.new_patients.subjects, SUBJECTS)))
        if page.patients >= SMALLEST_SHOWN:
            vocabulary = len(read_table(layout.vocab, VOCAB))
            page.add_tokens(
                *(drift.token_counts(each.seqset, vocabulary) for each in (layout, layout.new_patients))
            )
        for cohort in cohorts:
            page.add_scores(layout, cohort)
        return page

    def add_tokens(self, before: np.ndarray, new: np.ndarray) -> None:
        """Add the shares of unknown tokens and the divergence of tokens, from how often each occurs."""
        if not new.sum():
            return
        unknown, unknown_before = drift.unknown_share(new), drift.unknown_share(before)
        divergence = drift.jensen_shannon(before, new)
        self.tokens = {
            "unknown_tokens_share": unknown,
            "unknown_tokens_share_before": unknown_before,
            "token_divergence_bits": divergence,
        }
        if unknown > max(UNKNOWN_LIMIT, 2 * unknown_before):
            self.faults.append(f"{unknown:.1%} of the new patients' tokens are unknown.")
        if divergence > TOKEN_LIMIT:
            self.faults.append(f"Tokens differ by {divergence:.2f} bits (limit {TOKEN_LIMIT}).")

    def add_scores(self, layout: Layout, cohort: str) -> None:
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
        patients = {str(place): round(share * len(scores)) for place, share in enumerate(shares, start=1)}
        texts = suppress_parts(patients)  # the shares of all deciles add up to 100
        self.shares[row["cohort"]] = [
            (decile, round(100 * count / len(scores)) if texts[decile] == f"{count:,}" else None)
            for decile, count in patients.items()
        ]
        if index > SCORE_LIMIT:
            self.faults.append(
                f"{row['cohort']}: scores have shifted, stability index {index:.2f} (limit {SCORE_LIMIT})."
            )
