"""Logistic regression: a weight for each column, drawn towards 0 as hard as the validation patients ask for."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from nest_model.baselines.boosting import commonest_labels, labels_truth
from nest_model.data.labels import Labels
from nest_model.data.predictions import scorable
from nest_model.evaluation.validation_score import TUNING_LABELS, macro_average_precision
from nest_model.training.telemetry import Telemetry

STRENGTHS = (0.0001, 0.0003, 0.001, 0.003)
"""scikit-learn's C, of which validation chooses; the smaller, the nearer to no weights at all."""

_PRECISION = (
    1e-3  # of the gradient at the end; at 1e-4 AUROC is the same to the third digit, for half the time more
)

_LEAST_VARIANCE = 1e-9


@dataclass(frozen=True)
class Logistic:
    """What a logistic regression thinks of every row, and how it was chosen."""

    classes: tuple[str, ...]
    probability: np.ndarray  # f64 [rows, classes]
    strength: float
    validation: dict[str, float | None]  # what of it may be told


def fit_logistic(labels: Labels, features: sparse.csr_matrix, *, seed: int, telemetry: Telemetry) -> Logistic:
    """Fit at each of `STRENGTHS` on the training rows; keep the one whose validation AP is best, of equals the weakest.

    Of a list task the strength is chosen on its commonest labels together, as LightGBM's settings are.

    Args:
        features: [rows of the labels, columns], each not 0 in some training row.
    """
    kind = labels.task.label_type
    classes = commonest_labels(labels) if kind == "list" else labels.task.classes
    truth = labels_truth(labels, classes)
    learnt = truth.any(axis=1) | (kind != "class")  # of none of the task's classes: nothing to learn
    train, val = (np.flatnonzero((labels.split == name) & learnt) for name in ("train", "val"))
    scaled = _scaled(features, train)
    groups = [np.arange(truth.shape[1])] if kind == "class" else list(np.arange(truth.shape[1])[:, None])
    tuned, rest = groups[:TUNING_LABELS], groups[TUNING_LABELS:]
    progress = telemetry.progress(
        "logistic regression", total=len(STRENGTHS) * len(tuned) + len(rest), unit="fits"
    )

    def probability_of(some: Sequence[np.ndarray], strength: float) -> np.ndarray:
        columns = []
        for group in some:
            columns.append(_probability(scaled, truth[:, group], train, strength=strength, seed=seed))
            progress.advance(1)
        return np.hstack(columns) if columns else np.empty((len(labels), 0))

    trials = [probability_of(tuned, strength) for strength in STRENGTHS]
    columns = np.concatenate(tuned)
    merits = [macro_average_precision(truth[np.ix_(val, columns)], one[val]) for one in trials]
    best = max(range(len(trials)), key=lambda k: -1.0 if (merit := merits[k]) is None else merit)
    may_be_told = len(scorable(truth[np.ix_(val, columns)], labels.subject_id[val])) > 0
    return Logistic(
        classes=tuple(classes),
        probability=np.hstack([trials[best], probability_of(rest, STRENGTHS[best])]),
        strength=STRENGTHS[best],
        validation={"average_precision": merits[best] if may_be_told else None},
    )


def _scaled(features: sparse.csr_matrix, train: np.ndarray) -> sparse.csr_matrix:
    """Return the columns in units of their spread over the training rows.

    Their means are left in, so that what is 0 stays 0: the intercept, which nothing draws to 0, takes them up. A column
    that is the same in all of them says nothing and becomes 0.
    """
    rows = features[train]
    squares = np.asarray(rows.multiply(rows).mean(axis=0)).ravel()
    variance = squares - np.asarray(rows.mean(axis=0)).ravel() ** 2
    varies = variance > _LEAST_VARIANCE * squares  # of a column that does not, rounding leaves some
    return (features @ sparse.diags(varies / np.sqrt(np.where(varies, variance, 1)))).tocsr()


def _probability(
    scaled: sparse.csr_matrix, truth: np.ndarray, train: np.ndarray, *, strength: float, seed: int
) -> np.ndarray:
    """Return f64 [rows, columns of `truth`]: one outcome, or classes of which each row has one."""
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    single = truth.shape[1] == 1
    target = truth[train, 0].astype(int) if single else truth[train].argmax(axis=1)
    model = LogisticRegression(C=strength, tol=_PRECISION, max_iter=500, random_state=seed)
    whole = np.zeros((scaled.shape[0], 2 if single else truth.shape[1]))
    if len(outcomes := np.unique(target)) == 1:
        whole[:, outcomes] = 1
    else:
        with threadpool_limits(1):  # more would spin against a neighbour's
            whole[:, outcomes] = model.fit(scaled[train], target).predict_proba(scaled)
    return whole[:, 1:] if single else whole
