"""Logistic regression with an L2 penalty whose strength is chosen on the validation patients; ridge for numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from nest_model.baselines.boosting import commonest_labels, labels_truth
from nest_model.data.labels import Labels, is_validation_disclosable
from nest_model.data.predictions import scorable
from nest_model.evaluation.linear_loss import (
    fit_linear,
    loss_targets,
    predictions_of_outputs,
    validation_loss,
)
from nest_model.evaluation.validation_score import TUNING_LABELS, macro_average_precision
from nest_model.training.telemetry import Telemetry
from schemas.tables.labels import WITHOUT_CLASSES

STRENGTHS = (0.0001, 0.0003, 0.001, 0.003)
"""Candidates for scikit-learn's C, chosen on validation; the smaller, the stronger the shrinkage."""

_TOLERANCE = 1e-3
"""Gradient tolerance of the solver; 1e-4 gives the same AUROC to the third digit and takes half as long again."""

_LEAST_VARIANCE = 1e-9


@dataclass(frozen=True)
class LogisticFit:
    """The probabilities of a logistic regression for every row, and how it was chosen."""

    classes: tuple[str, ...]
    probability: np.ndarray  # f64 [rows, classes]
    strength: float
    validation: dict[str, float | None]  # the disclosable metrics


def fit_logistic(
    labels: Labels,
    features: sparse.csr_matrix,
    *,
    seed: int,
    telemetry: Telemetry,
    strengths: Sequence[float] = STRENGTHS,
) -> LogisticFit:
    """Fit with each of `strengths` on the training rows; keep the best by validation AP, the smallest C on ties.

    A list task's strength is chosen on its commonest labels together, as LightGBM's settings are.

    Args:
        features: [rows of the labels, columns], each non-zero in some training row.
    """
    kind = labels.task.label_type
    if kind in WITHOUT_CLASSES:
        return _fit_by_loss(labels, features, telemetry=telemetry)
    classes = commonest_labels(labels) if kind == "list" else labels.task.classes
    truth = labels_truth(labels, classes)
    # a row of a class task is left out if it has none of the task's classes
    has_class = truth.any(axis=1) | (kind != "class")
    train, val = (np.flatnonzero((labels.split == name) & has_class) for name in ("train", "val"))
    scaled_features = _scaled(features, train)
    groups = [np.arange(truth.shape[1])] if kind == "class" else list(np.arange(truth.shape[1])[:, None])
    tuning_groups, remaining_groups = groups[:TUNING_LABELS], groups[TUNING_LABELS:]
    progress = telemetry.progress(
        "logistic regression", total=len(strengths) * len(tuning_groups) + len(remaining_groups), unit="fits"
    )

    def probability_of(column_groups: Sequence[np.ndarray], strength: float) -> np.ndarray:
        columns = []
        for group in column_groups:
            columns.append(
                _probability(scaled_features, truth[:, group], train, strength=strength, seed=seed)
            )
            progress.advance(1)
        return np.hstack(columns) if columns else np.empty((len(labels), 0))

    trials = [probability_of(tuning_groups, strength) for strength in strengths]
    columns = np.concatenate(tuning_groups)
    merits = [
        macro_average_precision(truth[np.ix_(val, columns)], probability[val]) for probability in trials
    ]
    best = max(range(len(trials)), key=lambda k: -1.0 if (merit := merits[k]) is None else merit)
    is_disclosable = len(scorable(truth[np.ix_(val, columns)], labels.subject_id[val])) > 0
    return LogisticFit(
        classes=tuple(classes),
        probability=np.hstack([trials[best], probability_of(remaining_groups, strengths[best])]),
        strength=strengths[best],
        validation={"average_precision": merits[best] if is_disclosable else None},
    )


def _fit_by_loss(labels: Labels, features: sparse.csr_matrix, *, telemetry: Telemetry) -> LogisticFit:
    """Fit a number or a time with each of `STRENGTHS` on the training rows; keep the smallest validation loss."""
    from threadpoolctl import threadpool_limits

    task, target = labels.task, loss_targets(labels)
    train, val = (np.flatnonzero(labels.split == name) for name in ("train", "val"))
    scaled_features = _scaled(features, train)
    progress = telemetry.progress("linear model", total=len(STRENGTHS), unit="fits")
    trials = []
    for strength in STRENGTHS:
        with threadpool_limits(1):
            weights, bias = fit_linear(scaled_features[train], target[train], strength, task)
        trials.append(scaled_features @ weights.T + bias)
        progress.advance(1)
    losses = [validation_loss(outputs[val], target[val], task) for outputs in trials]
    best = int(np.argmin(losses))
    return LogisticFit(
        classes=task.classes,
        probability=predictions_of_outputs(trials[best], task),
        strength=STRENGTHS[best],
        validation={"loss": losses[best] if is_validation_disclosable(labels) else None},
    )


def _scaled(features: sparse.csr_matrix, train: np.ndarray) -> sparse.csr_matrix:
    """Return the columns divided by their standard deviation over the training rows.

    The means are not subtracted, so that zeros stay zeros and the matrix sparse; the intercept, which is not
    penalized, absorbs them. A column that is constant over the training rows becomes 0.
    """
    rows = features[train]
    squares = np.asarray(rows.multiply(rows).mean(axis=0)).ravel()
    variance = squares - np.asarray(rows.mean(axis=0)).ravel() ** 2
    varies = variance > _LEAST_VARIANCE * squares  # rounding leaves a constant column some variance
    return (features @ sparse.diags(varies / np.sqrt(np.where(varies, variance, 1)))).tocsr()


def _probability(
    scaled_features: sparse.csr_matrix, truth: np.ndarray, train: np.ndarray, *, strength: float, seed: int
) -> np.ndarray:
    """Return f64 [rows, columns of `truth`]: one outcome, or classes of which each row has exactly one."""
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    single = truth.shape[1] == 1
    target = truth[train, 0].astype(int) if single else truth[train].argmax(axis=1)
    model = LogisticRegression(C=strength, tol=_TOLERANCE, max_iter=500, random_state=seed)
    probability = np.zeros((scaled_features.shape[0], 2 if single else truth.shape[1]))
    if len(outcomes := np.unique(target)) == 1:
        probability[:, outcomes] = 1
    else:
        with threadpool_limits(1):  # several threads spin on a busy machine
            probability[:, outcomes] = model.fit(scaled_features[train], target).predict_proba(
                scaled_features
            )
    return probability[:, 1:] if single else probability
