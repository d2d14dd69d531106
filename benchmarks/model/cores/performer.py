"""Performer (Choromanski et al. 2021): softmax attention by positive orthogonal random features, FAVOR+."""

import torch
from torch import Tensor, nn

from benchmarks.model.cores.sequences import as_rows, as_sequences
from benchmarks.model.sizes import Sizes

EPSILON = 1e-6  # added to every feature, as the authors do: no query is left without a key


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
        asked, told = self._features(query, (-1,)), self._features(key, (-2, -1))
        weights = asked @ told.sum(-2).unsqueeze(-1)
        return as_rows(asked @ (told.transpose(-1, -2) @ value) / weights)

    def _features(self, rows: Tensor, over: tuple[int, ...]) -> Tensor:
        """exp(direction · x - |x|² / 2), x the rows over d_head^¼, each divided by the greatest `over` its axes.

        A divisor of all features of a query, or of all keys', falls out of the quotient.
        """
        wide = torch.promote_types(rows.dtype, torch.float32)
        scaled = rows * rows.shape[-1] ** -0.25
        exponents = (scaled @ self.directions.T).to(wide) - scaled.to(wide).square().sum(-1, keepdim=True) / 2
        greatest = exponents.detach().amax(over, keepdim=True)
        return ((exponents - greatest).exp() + EPSILON).to(rows.dtype)


def orthogonal(features: int, d_head: int) -> Tensor:
    """Return normal directions [features, d_head], orthogonal inside every d_head of them."""
    blocks = -(-features // d_head)
    turns, triangles = torch.linalg.qr(torch.randn(blocks, d_head, d_head))
    turns = (
        turns * triangles.diagonal(dim1=-2, dim2=-1).sign()[:, None]
    )  # QR's own signs favour half a sphere
    return turns.flatten(0, 1)[:features] * torch.randn(features, d_head).norm(dim=1, keepdim=True)
