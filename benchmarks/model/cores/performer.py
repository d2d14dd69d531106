"""Performer (Choromanski et al. 2021): softmax attention by positive orthogonal random features, FAVOR+."""

import torch
from torch import Tensor, nn

from benchmarks.model.cores.sequences import as_rows, as_sequences
from benchmarks.model.sizes import Sizes

EPSILON = 1e-6  # added to every feature, as by the authors, so that no query has zero weight on all keys


class Performer(nn.Module):
    """φ(q) · (φ(k)ᵀ v) / (φ(q) · Σ φ(k)), where E[φ(q) · φ(k)] = exp(q · k / √d_head).

    The directions are drawn once, from torch's global generator.
    """

    directions: Tensor

    def __init__(self, sizes: Sizes, features: int | None = None) -> None:
        super().__init__()
        self.length = sizes.length
        self.register_buffer("directions", orthogonal(features or sizes.features, sizes.d_head))

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query, key, value = (as_sequences(rows, self.length) for rows in (query, key, value))
        query_features, key_features = self._features(query, (-1,)), self._features(key, (-2, -1))
        weights = query_features @ key_features.sum(-2).unsqueeze(-1)
        return as_rows(query_features @ (key_features.transpose(-1, -2) @ value) / weights)

    def _features(self, rows: Tensor, axes: tuple[int, ...]) -> Tensor:
        """Return exp(direction · x - |x|² / 2) with x = rows / d_head^¼, divided by the greatest along `axes`.

        A common divisor of all features of a query, or of those of all keys, cancels in the attention's quotient.
        """
        wide_dtype = torch.promote_types(rows.dtype, torch.float32)
        scaled_rows = rows * rows.shape[-1] ** -0.25
        exponents = (scaled_rows @ self.directions.T).to(wide_dtype) - scaled_rows.to(
            wide_dtype
        ).square().sum(-1, keepdim=True) / 2
        greatest = exponents.detach().amax(axes, keepdim=True)
        return ((exponents - greatest).exp() + EPSILON).to(rows.dtype)


def orthogonal(features: int, d_head: int) -> Tensor:
    """Return normally distributed directions [features, d_head], orthogonal within each block of d_head."""
    blocks = -(-features // d_head)
    rotations, triangles = torch.linalg.qr(torch.randn(blocks, d_head, d_head))
    rotations = (
        rotations * triangles.diagonal(dim1=-2, dim2=-1).sign()[:, None]
    )  # QR's own signs favour half a sphere
    return rotations.flatten(0, 1)[:features] * torch.randn(features, d_head).norm(dim=1, keepdim=True)
