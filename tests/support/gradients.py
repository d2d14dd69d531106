"""Gradients of a model beside those of a reference."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor


def gradients(weights: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """Return a copy of each weight's gradient, 0 where it has none."""
    return {
        name: torch.zeros_like(weight) if weight.grad is None else weight.grad.clone()
        for name, weight in weights
    }


def assert_near(actual: Mapping[str, Tensor], expected: Mapping[str, Tensor], tolerance: float) -> None:
    """Compare gradients, relative to the largest of each weight, if above 1: sums of large terms may cancel."""
    assert actual.keys() == expected.keys()
    for name, values in expected.items():
        scale = max(1.0, float(values.abs().max()))
        torch.testing.assert_close(actual[name], values, rtol=0, atol=tolerance * scale, msg=name)
