"""The inflation of an AUROC by features: that of a light model with them minus that of one without.

The light model is a ridge regression on the columns most associated with the outcome, cross-validated in five folds of
patients, so that every patient counts. It is quick enough to be refitted for each suspect.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg, sparse

from nest_model.data.predictions import Predictions
from nest_model.evaluation.bootstrap import SEED, Resamples
from nest_model.evaluation.metrics import Score, combine, score
from schemas.suppress import SMALLEST_SHOWN
from schemas.tables.leak_audit import Measure

FOLDS = 5
COLUMNS = 256
"""How many columns enter a model: those most associated with the outcome in its training folds."""

SHRINKAGE = 0.1
"""Ridge penalty per training row."""

MOST_CLASSES = 8


@dataclass(frozen=True)
class AurocEstimator:
    """Cross-validated AUROC on the rows of an audit, which include no test rows."""

    rows: Predictions  # only their truth is used

    @cached_property
    def resamples(self) -> Resamples:
        return Resamples.of(self.rows.subject_id)

    @cached_property
    def fold(self) -> np.ndarray:
        """Return the fold [rows] of each row's patient."""
        subjects, place = np.unique(self.rows.subject_id, return_inverse=True)
        return (np.random.default_rng(SEED).permutation(len(subjects)) % FOLDS)[place]

    def auroc(self, matrix: sparse.csr_matrix) -> Score:
        """Return the AUROC of a model on these columns."""
        return self.auroc_of(self.predictions(matrix))

    def auroc_of(self, predictions: Predictions) -> Score:
        """Return the AUROC of predictions on some of the rows; the resampled patients are always the same."""
        return score(predictions, self.resamples, metrics=("auroc",))["auroc"]

    def predictions(self, matrix: sparse.csr_matrix) -> Predictions:
        """Return out-of-fold predictions of the rows by models on these columns."""
        truth = self.rows.truth.astype(float)
        scores = np.zeros(truth.shape)
        for part in range(FOLDS):
            inside, outside = np.flatnonzero(self.fold == part), np.flatnonzero(self.fold != part)
            if len(inside) and len(outside) and truth.shape[1]:  # else no class can be scored
                scores[inside] = _ridge(matrix[outside], truth[outside], matrix[inside])
        return self.rows.with_probability(scores)


def inflation(score_with: Score, score_without: Score) -> Score:
    """Return the difference of two scores on the same resamples of patients."""
    return combine([score_with, score_without], lambda pair: pair[0] - pair[1])


def measure(metric_score: Score) -> Measure:
    """Return a score in the form it is written in."""
    return Measure(**metric_score.json())


def scorable_classes(truth: np.ndarray) -> np.ndarray:
    """Return the commonest columns of a truth [rows, classes] whose score may be disclosed."""
    positives = truth.sum(axis=0)
    has_enough = np.minimum(positives, len(truth) - positives) >= SMALLEST_SHOWN
    common = np.argsort(-positives, kind="stable")
    scorable: np.ndarray = common[has_enough[common]][:MOST_CLASSES]
    return scorable


def _ridge(fit_matrix: sparse.csr_matrix, truth: np.ndarray, score_matrix: sparse.csr_matrix) -> np.ndarray:
    """Return scores [rows of `score_matrix`, classes] by a ridge regression on the most associated columns."""
    rows = fit_matrix.shape[0]
    mean = np.asarray(fit_matrix.mean(axis=0)).ravel()
    squares = np.asarray(fit_matrix.multiply(fit_matrix).mean(axis=0)).ravel()
    deviation = np.sqrt(np.maximum(squares - mean**2, 2 * SMALLEST_SHOWN / rows))
    residuals = truth - truth.mean(axis=0)
    association = np.abs(fit_matrix.T @ residuals) / deviation[:, None]
    strongest = np.argsort(-association.max(axis=1), kind="stable")[:COLUMNS]
    features = fit_matrix[:, strongest].toarray().astype(float) - mean[strongest]
    gram = features.T @ features
    gram[np.diag_indices(len(gram))] += SHRINKAGE * rows
    weights = linalg.solve(gram, features.T @ residuals, assume_a="pos")
    score_features = score_matrix[:, strongest].toarray().astype(float) - mean[strongest]
    scores: np.ndarray = score_features @ weights + truth.mean(axis=0)
    return scores
