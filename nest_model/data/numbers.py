"""Numbers as a model learns them, on the scale of their task, and back."""

import numpy as np

from schemas.tables.labels import NumberScale

HUBER_DELTA = 1.0
"""Deviations of the training labels up to which an error counts by its square; every model of a number has it."""

MOST_DEVIATIONS = 10.0
"""Outputs farther from the mean than this are cut, so that the exponential of a logarithmic scale stays finite."""


def to_scale(numbers: np.ndarray, scale: NumberScale | None) -> np.ndarray:
    """Return numbers on the scale of a task."""
    assert scale is not None  # a task of numbers has one
    values: np.ndarray = ((np.log1p(numbers) if scale.is_log else numbers) - scale.mean) / scale.deviation
    return values


def from_scale(outputs: np.ndarray, scale: NumberScale | None) -> np.ndarray:
    """Return what a model's outputs on the scale of a task are as numbers; never negative on a logarithmic scale."""
    assert scale is not None  # a task of numbers has one
    values = np.clip(outputs, -MOST_DEVIATIONS, MOST_DEVIATIONS) * scale.deviation + scale.mean
    numbers: np.ndarray = np.maximum(np.expm1(values), 0.0) if scale.is_log else values
    return numbers
