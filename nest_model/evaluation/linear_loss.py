"""Linear models of numbers and times, and the loss by which the settings of every model of these are chosen."""

import numpy as np
from scipy import sparse

from nest_model.data.labels import Labels
from nest_model.data.numbers import HUBER_DELTA, from_scale, to_scale
from nest_model.data.times import interval_targets, survival
from nest_model.evaluation.hazards import levelled_hazard_loss, pooled_logistic
from nest_model.evaluation.validation_score import mean_huber_loss
from schemas.tables.labels import Task

_TOLERANCE = 1e-3


def loss_targets(labels: Labels) -> np.ndarray:
    """Return what models of a number or a time learn: f64 [rows, 1] on the scale, or [rows, intervals]."""
    truth = labels.truth(())
    if labels.task.label_type == "number":
        return to_scale(truth, labels.task.scale)
    return interval_targets(truth[:, 0], truth[:, 1], labels.task.times_days)


def fit_linear(
    features: np.ndarray | sparse.csr_matrix, targets: np.ndarray, strength: float, task: Task
) -> tuple[np.ndarray, np.ndarray]:
    """Return weights f32 [outputs, columns] and intercepts f32 [outputs] of a ridge or a pooled logistic regression.

    Args:
        strength: scikit-learn's C; ridge has a penalty of 1 / C, so that it means the same.
    """
    from sklearn.linear_model import Ridge

    if task.label_type == "time":
        weights, bias = pooled_logistic(features, targets, strength)
        weights_of_time = np.tile(weights, (targets.shape[1], 1))
        return weights_of_time.astype(np.float32), bias.astype(np.float32)
    solver = "sparse_cg" if sparse.issparse(features) else "auto"
    model = Ridge(alpha=1 / strength, solver=solver, tol=_TOLERANCE).fit(features, targets[:, 0])
    return model.coef_[None].astype(np.float32), np.array([model.intercept_], np.float32)


def validation_loss(outputs: np.ndarray, targets: np.ndarray, task: Task) -> float:
    """Return the mean loss of a model's outputs [rows, outputs] on the targets of `loss_targets`."""
    if task.label_type == "time":
        return levelled_hazard_loss(outputs, targets)
    return mean_huber_loss(targets, outputs, HUBER_DELTA)


def predictions_of_outputs(outputs: np.ndarray, task: Task) -> np.ndarray:
    """Return what outputs mean: the numbers, or the probability of no event yet at each time."""
    outputs = outputs.astype(np.float64)
    return survival(outputs) if task.label_type == "time" else from_scale(outputs, task.scale)
