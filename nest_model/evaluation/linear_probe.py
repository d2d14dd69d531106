"""The probe: what a pretrained encoder knows of a task already, read off its frozen rows by a straight line.

Beside the fine-tuned model it says what training the encoder on the task adds.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save

from nest_model.data.labels import Labels
from nest_model.data.predictions import classes_of, scorable
from nest_model.evaluation.validation_score import TUNING_LABELS, macro_average_precision
from schemas.io.outputs import write_bytes
from schemas.tables.labels import LabelType

STRENGTHS = (0.001, 0.01, 0.1, 1.0)
"""scikit-learn's C, of which validation chooses; the smaller, the nearer to no weights at all."""


@dataclass(frozen=True)
class Probe:
    """A logistic regression for each column of a task's truth, on rows standardized as the training rows are."""

    mean: np.ndarray  # f32 [width]
    deviation: np.ndarray  # f32 [width]
    weights: np.ndarray  # f32 [columns, width]
    bias: np.ndarray  # f32 [columns]
    strength: float

    def probabilities(self, rows: np.ndarray, label_type: LabelType) -> np.ndarray:
        """Return f32 [rows, columns]; of one class of many they sum to one."""
        standard = (rows - self.mean) / self.deviation
        logits = torch.from_numpy(standard @ self.weights.T + self.bias)
        return (logits.softmax(dim=1) if label_type == "class" else logits.sigmoid()).numpy()

    def save(self, path: Path) -> None:
        tensors = {name: value for name, value in asdict(self).items() if isinstance(value, np.ndarray)}
        write_bytes(path, save(tensors, metadata={"strength": str(self.strength)}))


def fit_probe(labels: Labels, rows: np.ndarray, *, seed: int) -> tuple[Probe, Mapping[str, float]]:
    """Return the probe whose strength validation prefers by AP, of equals the weakest, and what may be told of it.

    Of a list task the strength is chosen on its `TUNING_LABELS` commonest labels: hundreds of labels at every strength
    would take longer than the fine-tuning.

    Args:
        rows: f32 [rows of the labels, width], what is read of the frozen encoder.
    """
    kind = labels.task.label_type
    truth = labels.truth(classes_of(labels.task))
    learnt = truth.any(axis=1) | (kind != "class")  # of none of the task's classes: nothing to learn
    train, val = (np.flatnonzero((labels.split == split) & learnt) for split in ("train", "val"))
    tuned = _commonest(truth[train]) if kind == "list" else np.arange(truth.shape[1])
    trials = [
        _fit(rows[train], truth[np.ix_(train, tuned)], kind, strength=strength, seed=seed)
        for strength in STRENGTHS
    ]
    merits = [_merit(truth[np.ix_(val, tuned)], probe.probabilities(rows[val], kind)) for probe in trials]
    best = trials[max(range(len(trials)), key=merits.__getitem__)]  # the first of equals
    if len(tuned) < truth.shape[1]:
        best = _fit(rows[train], truth[train], kind, strength=best.strength, seed=seed)
    precision, _ = _merit(truth[val], best.probabilities(rows[val], kind))
    metrics = {"average_precision": precision} if len(scorable(truth[val], labels.subject_id[val])) else {}
    return best, metrics | {"strength": best.strength}


def _commonest(truth: np.ndarray) -> np.ndarray:
    """Return the `TUNING_LABELS` columns with most rows, ascending; of equals the first."""
    commonest = np.argsort(-truth.sum(axis=0), kind="stable")[:TUNING_LABELS]
    return np.sort(commonest)


def _fit(rows: np.ndarray, truth: np.ndarray, kind: LabelType, *, strength: float, seed: int) -> Probe:
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    mean, deviation = rows.mean(axis=0), rows.std(axis=0)
    deviation = np.where(deviation > 0, deviation, 1).astype(np.float32)
    standard = (rows - mean) / deviation
    model = LogisticRegression(C=strength, max_iter=500, random_state=seed)
    weights = np.zeros((truth.shape[1], rows.shape[1]), np.float32)
    # where nothing is to be told apart: as sure as half a row of the other kind leaves one
    bias = np.where(truth.any(axis=0), 1, -1).astype(np.float32) * np.log(2 * len(rows) + 1, dtype=np.float32)
    with threadpool_limits(1):  # more would spin against a neighbour's: 100 s where one takes 5
        if kind == "class" and truth.any(axis=0).sum() > 1:
            model.fit(standard, truth.argmax(axis=1))
            known = model.classes_[-len(model.coef_) :]  # of two classes the first has no weights of its own
            bias[model.classes_] = 0
            weights[known], bias[known] = model.coef_, model.intercept_
        elif kind != "class":
            for column in np.flatnonzero(truth.any(axis=0) & ~truth.all(axis=0)):
                model.fit(standard, truth[:, column])
                weights[column], bias[column] = model.coef_[0], model.intercept_[0]
    return Probe(mean, deviation, weights, bias, strength)


def _merit(truth: np.ndarray, probability: np.ndarray) -> tuple[float, float]:
    """Return AP (-1: nothing to tell apart), then the negative squared error: the larger the better."""
    precision = macro_average_precision(truth, probability) if len(truth) else None
    error = float(np.mean((truth - probability) ** 2)) if len(truth) else 0.0
    return -1.0 if precision is None else precision, -error
