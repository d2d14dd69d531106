"""A linear probe: how well a logistic regression on the frozen pretrained encoder solves a task; ridge for numbers.

Compared with the fine-tuned model, it shows what training the encoder on the task adds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save

from nest_model.data.labels import Labels, is_validation_disclosable
from nest_model.data.predictions import classes_of, scorable
from nest_model.evaluation.linear_loss import (
    fit_linear,
    loss_targets,
    predictions_of_outputs,
    validation_loss,
)
from nest_model.evaluation.validation_score import TUNING_LABELS, macro_average_precision
from schemas.io.outputs import write_bytes
from schemas.tables.labels import WITHOUT_CLASSES, LabelType, Task

STRENGTHS = (0.001, 0.01, 0.1, 1.0)
"""Candidates for scikit-learn's C, chosen on validation; the smaller, the stronger the shrinkage."""


@dataclass(frozen=True)
class LinearProbe:
    """One logistic regression per column of a task's truth, on rows standardized by the training rows."""

    mean: np.ndarray  # f32 [width]
    deviation: np.ndarray  # f32 [width]
    weights: np.ndarray  # f32 [columns, width]
    bias: np.ndarray  # f32 [columns]
    strength: float

    def outputs(self, rows: np.ndarray) -> np.ndarray:
        """Return f32 [rows, columns]: the log-odds of each column, or a number on the scale of its task."""
        standard = (rows - self.mean) / self.deviation
        outputs: np.ndarray = standard @ self.weights.T + self.bias
        return outputs

    def probabilities(self, rows: np.ndarray, task: Task) -> np.ndarray:
        """Return f32 [rows, columns]; those of a class task sum to one; of a number or a time, what is predicted."""
        if task.label_type in WITHOUT_CLASSES:
            return predictions_of_outputs(self.outputs(rows), task)
        logits = torch.from_numpy(self.outputs(rows))
        probability: np.ndarray = (
            logits.softmax(dim=1) if task.label_type == "class" else logits.sigmoid()
        ).numpy()
        return probability

    def save(self, path: Path) -> None:
        tensors = {name: value for name, value in asdict(self).items() if isinstance(value, np.ndarray)}
        write_bytes(path, save(tensors, metadata={"strength": str(self.strength)}))


def fit_probe(
    labels: Labels, rows: np.ndarray, *, seed: int, strengths: Sequence[float] = STRENGTHS
) -> tuple[LinearProbe, Mapping[str, float]]:
    """Return the probe with the best validation AP, the smallest C on ties, and its disclosable validation metrics.

    A list task's strength is chosen on its `TUNING_LABELS` commonest labels: hundreds of labels at every strength
    would take longer than the fine-tuning.

    Args:
        rows: f32 [rows of the labels, width], the outputs of the frozen encoder.
        strengths: candidates for C, in rising order.
    """
    task, kind = labels.task, labels.task.label_type
    if kind in WITHOUT_CLASSES:
        return _fit_by_loss(labels, rows)
    truth = labels.truth(classes_of(labels.task))
    # a row of a class task is left out if it has none of the task's classes
    trainable = truth.any(axis=1) | (kind != "class")
    train, val = (np.flatnonzero((labels.split == split) & trainable) for split in ("train", "val"))
    tuning_columns = _commonest(truth[train]) if kind == "list" else np.arange(truth.shape[1])
    trials = [
        _fit(rows[train], truth[np.ix_(train, tuning_columns)], kind, strength=strength, seed=seed)
        for strength in strengths
    ]
    merits = [
        _merit(truth[np.ix_(val, tuning_columns)], probe.probabilities(rows[val], task)) for probe in trials
    ]
    best = trials[max(range(len(trials)), key=merits.__getitem__)]  # the first on ties
    if len(tuning_columns) < truth.shape[1]:
        best = _fit(rows[train], truth[train], kind, strength=best.strength, seed=seed)
    precision, _ = _merit(truth[val], best.probabilities(rows[val], task))
    metrics = {"average_precision": precision} if len(scorable(truth[val], labels.subject_id[val])) else {}
    return best, metrics | {"strength": best.strength}


def _fit_by_loss(labels: Labels, rows: np.ndarray) -> tuple[LinearProbe, Mapping[str, float]]:
    """Return the probe of a number or a time with the smallest validation loss, the strongest shrinkage on ties."""
    target = loss_targets(labels)
    train, val = (np.flatnonzero(labels.split == split) for split in ("train", "val"))
    mean, deviation = _standards(rows[train])
    standard = (rows[train] - mean) / deviation
    trials = [
        LinearProbe(mean, deviation, *fit_linear(standard, target[train], strength, labels.task), strength)
        for strength in STRENGTHS
    ]
    losses = [validation_loss(probe.outputs(rows[val]), target[val], labels.task) for probe in trials]
    place = int(np.argmin(losses))
    metrics = {"loss": losses[place]} if is_validation_disclosable(labels) else {}
    return trials[place], metrics | {"strength": trials[place].strength}


def _standards(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and deviation of each column; 1 for a column that does not vary."""
    deviation = rows.std(axis=0)
    return rows.mean(axis=0), np.where(deviation > 0, deviation, 1).astype(np.float32)


def _commonest(truth: np.ndarray) -> np.ndarray:
    """Return the `TUNING_LABELS` columns with most rows, in ascending order; the first on ties."""
    commonest = np.argsort(-truth.sum(axis=0), kind="stable")[:TUNING_LABELS]
    return np.sort(commonest)


def _fit(rows: np.ndarray, truth: np.ndarray, kind: LabelType, *, strength: float, seed: int) -> LinearProbe:
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    mean, deviation = _standards(rows)
    standard = (rows - mean) / deviation
    model = LogisticRegression(C=strength, max_iter=500, random_state=seed)
    weights = np.zeros((truth.shape[1], rows.shape[1]), np.float32)
    # columns with one outcome only: as certain as half a row with the other outcome would allow
    bias = np.where(truth.any(axis=0), 1, -1).astype(np.float32) * np.log(2 * len(rows) + 1, dtype=np.float32)
    with threadpool_limits(1):  # several threads spin on a busy machine: 100 s where one takes 5
        if kind == "class" and truth.any(axis=0).sum() > 1:
            model.fit(standard, truth.argmax(axis=1))
            # with two classes scikit-learn has weights for the second only
            class_columns = model.classes_[-len(model.coef_) :]
            bias[model.classes_] = 0
            weights[class_columns], bias[class_columns] = model.coef_, model.intercept_
        elif kind != "class":
            for column in np.flatnonzero(truth.any(axis=0) & ~truth.all(axis=0)):
                model.fit(standard, truth[:, column])
                weights[column], bias[column] = model.coef_[0], model.intercept_[0]
    return LinearProbe(mean, deviation, weights, bias, strength)


def _merit(truth: np.ndarray, probability: np.ndarray) -> tuple[float, float]:
    """Return AP (-1 if undefined), then the negative squared error; larger is better."""
    precision = macro_average_precision(truth, probability) if len(truth) else None
    error = float(np.mean((truth - probability) ** 2)) if len(truth) else 0.0
    return -1.0 if precision is None else precision, -error
