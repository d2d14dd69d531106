"""Whether newly scored patients are like those a model was made with: tokens, scores and, in time, outcomes.

Shares and distances are over all new patients; none is given for fewer than eleven.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nest_model.data.predictions import MODEL_SHA256
from schemas.contract import read_table, table_metadata
from schemas.io.verify import verified
from schemas.suppress import SMALLEST_SHOWN
from schemas.tables.labels import predictions_schema

UNKNOWN = 1
"""The token of a code that the vocabulary does not have."""
BINS = 10
"""Bins of the scores: the deciles of the reference."""


@dataclass(frozen=True)
class NewScores:
    """The last score of each new stay by one model."""

    table: pa.Table  # subject_id, encounter_id, score
    since: str  # the first day of that model, as its file is named; empty: it has scored nobody yet
    days_of_others: int  # days whose scores are left out, because an earlier model made them

    def __len__(self) -> int:
        return len(self.table)

    @property
    def score(self) -> np.ndarray:
        values: np.ndarray = self.table["score"].to_numpy()
        return values


@dataclass(frozen=True)
class Calibration:
    """What came of the patients scored: their share with the outcome beside the share predicted."""

    patients: int
    observed: float
    predicted: float


def token_counts(seqset: Path, tokens: int) -> np.ndarray:
    """Return how often each token of a vocabulary occurs in a folder of shards, i64 [tokens]."""
    counts = np.zeros(tokens, np.int64)
    for shard in sorted(seqset.glob("*.parquet")):
        for batch in pq.ParquetFile(verified(shard)).iter_batches(columns=["tokens"]):
            values = batch.column(0).flatten().to_numpy(zero_copy_only=False)
            counts += np.bincount(values, minlength=tokens)
    return counts


def unknown_share(counts: np.ndarray) -> float:
    """Return the share of tokens that the vocabulary does not have."""
    return float(counts[UNKNOWN] / max(counts.sum(), 1))


def jensen_shannon(p_counts: np.ndarray, q_counts: np.ndarray) -> float:
    """Return the Jensen-Shannon divergence of two distributions in bits: 0 equal, 1 disjoint (Lin 1991, eq. 4.1)."""
    p, q = (counts / counts.sum() for counts in (p_counts, q_counts))
    middle = (p + q) / 2

    def from_middle(shares: np.ndarray) -> float:
        present = shares > 0
        return float(np.sum(shares[present] * np.log2(shares[present] / middle[present])))

    return (from_middle(p) + from_middle(q)) / 2


def decile_shares(reference: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return the share of scores in each decile of the reference, f64 [bins]: a tenth each where nothing changed."""
    edges = np.quantile(reference, np.linspace(0, 1, BINS + 1)[1:-1])
    return np.bincount(np.searchsorted(edges, scores, side="right"), minlength=BINS) / len(scores)


def stability_index(reference: np.ndarray, scores: np.ndarray) -> float:
    """Return the population stability index of scores over the reference's deciles: Σ (p − q) ln(p / q).

    By custom below 0.1 is stable and above 0.25 has shifted (Siddiqi 2006, Credit Risk Scorecards, chapter 9). An
    empty bin counts as half a patient, since its logarithm has no value.
    """
    p, q = decile_shares(reference, reference), decile_shares(reference, scores)
    p, q = np.maximum(p, 0.5 / len(reference)), np.maximum(q, 0.5 / len(scores))
    return float(np.sum((p - q) * np.log(p / q)))


def new_scores(folder: Path, model_sha256: str) -> NewScores:
    """Return the last score of each new stay by the model of this hash, from the files of all its days.

    Scores of another model, such as one trained before, say nothing about the drift of patients.
    """
    files = sorted(folder.glob("*.parquet"))
    own_files = [file for file in files if table_metadata(file).get(MODEL_SHA256) == model_sha256]
    scores: dict[tuple[int, int], float] = {}
    for file in own_files:
        table = read_table(file, predictions_schema("bool"))
        stays = zip(table["subject_id"].to_pylist(), table["encounter_id"].to_pylist(), strict=True)
        scores |= dict(zip(stays, pc.list_flatten(table["probability"]).to_pylist(), strict=True))
    table = pa.table(
        {
            "subject_id": pa.array([stay[0] for stay in scores], pa.int64()),
            "encounter_id": pa.array([stay[1] for stay in scores], pa.int64()),
            "score": pa.array(list(scores.values()), pa.float64()),
        }
    )
    return NewScores(table, own_files[0].stem if own_files else "", len(files) - len(own_files))


def calibration(scores: NewScores, labels: Path) -> Calibration | None:
    """Return the outcomes of the scored stays that a cohort has labels of by now.

    None where fewer than eleven patients have the outcome, or fewer than eleven have not.
    """
    outcomes = pq.read_table(verified(labels), columns=["subject_id", "index_encounter", "label"])
    outcomes = outcomes.rename_columns(["subject_id", "encounter_id", "label"])
    rows = scores.table.join(outcomes, ["subject_id", "encounter_id"], join_type="inner")
    outcome = rows["label"].to_numpy(zero_copy_only=False).astype(bool)
    subjects = rows["subject_id"].to_numpy()
    if min(len(np.unique(subjects[outcome])), len(np.unique(subjects[~outcome]))) < SMALLEST_SHOWN:
        return None
    return Calibration(
        len(np.unique(subjects)), float(outcome.mean()), float(rows["score"].to_numpy().mean())
    )
