"""What features are worth to a score: the AUROC of a light model with them less that of one without.

A ridge regression on the columns that go most with the outcome, in five parts by patient: each part is judged by the
model of the other four, so that every patient counts. Quick enough to be fitted anew for each suspect.
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
"""So many of the columns enter a model, those that go most with the outcome among the patients it is fitted on."""

SHRINKAGE = 0.1
"""Of the ridge, for each row it is fitted on."""

MOST_CLASSES = 8


@dataclass(frozen=True)
class Judge:
    """The rows suspects are judged on: no test row among them."""

    rows: Predictions  # of which the truth is asked, and no probability

    @cached_property
    def resamples(self) -> Resamples:
        return Resamples.of(self.rows.subject_id)

    @cached_property
    def fold(self) -> np.ndarray:
        """[rows] the part each patient is in."""
        subjects, place = np.unique(self.rows.subject_id, return_inverse=True)
        return (np.random.default_rng(SEED).permutation(len(subjects)) % FOLDS)[place]

    def auroc(self, matrix: sparse.csr_matrix) -> Score:
        """Return the AUROC of a model on these columns."""
        return self.auroc_of(self.predictions(matrix))

    def auroc_of(self, predictions: Predictions) -> Score:
        """Return the AUROC of predictions on some of the rows; the same patients are drawn each time."""
        return score(predictions, self.resamples, metrics=("auroc",))["auroc"]

    def predictions(self, matrix: sparse.csr_matrix) -> Predictions:
        """Return what models on these columns predict of the rows, each by one that has not seen its patient."""
        truth = self.rows.truth.astype(float)
        scores = np.zeros(truth.shape)
        for part in range(FOLDS):
            inside, outside = np.flatnonzero(self.fold == part), np.flatnonzero(self.fold != part)
            if len(inside) and len(outside) and truth.shape[1]:  # of no class a score may be told
                scores[inside] = _ridge(matrix[outside], truth[outside], matrix[inside])
        return self.rows.with_probability(scores)


def inflation(with_it: Score, without: Score) -> Score:
    """Return how much higher one score is than the other, on the same resamples of patients."""
    return combine([with_it, without], lambda pair: pair[0] - pair[1])


def measure(one: Score) -> Measure:
    """Return a score as it is written down."""
    return Measure(**one.json())


def judged_classes(truth: np.ndarray) -> np.ndarray:
    """Return the commonest columns of a truth [rows, classes] that a score may be told of."""
    positives = truth.sum(axis=0)
    enough = np.minimum(positives, len(truth) - positives) >= SMALLEST_SHOWN
    common = np.argsort(-positives, kind="stable")
    return common[enough[common]][:MOST_CLASSES]


def _ridge(fitted_on: sparse.csr_matrix, truth: np.ndarray, scored_rows: sparse.csr_matrix) -> np.ndarray:
    """Return the scores of `scored_rows` [rows, classes] by a ridge regression on the most telling columns."""
    rows = fitted_on.shape[0]
    mean = np.asarray(fitted_on.mean(axis=0)).ravel()
    squares = np.asarray(fitted_on.multiply(fitted_on).mean(axis=0)).ravel()
    deviation = np.sqrt(np.maximum(squares - mean**2, 2 * SMALLEST_SHOWN / rows))
    centred = truth - truth.mean(axis=0)
    association = np.abs(fitted_on.T @ centred) / deviation[:, None]
    strongest = np.argsort(-association.max(axis=1), kind="stable")[:COLUMNS]
    features = fitted_on[:, strongest].toarray().astype(float) - mean[strongest]
    gram = features.T @ features
    gram[np.diag_indices(len(gram))] += SHRINKAGE * rows
    weights = linalg.solve(gram, features.T @ centred, assume_a="pos")
    new = scored_rows[:, strongest].toarray().astype(float) - mean[strongest]
    return new @ weights + truth.mean(axis=0)
