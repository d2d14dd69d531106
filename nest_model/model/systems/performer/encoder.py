"""Performer: attention of all rows of a patient in linear time, after Choromanski et al. 2021 (arXiv 2009.14794).

FAVOR+ (sections 2.3 and 2.4): E[φ(q) · φ(k)] = exp(q · k / √d_head) for positive features φ of random orthogonal
directions, so the softmax's quotient is one of sums over features, and a patient's keys are summed up once.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor

from nest_model.data.packed import PackedBatch
from nest_model.model.attention import AttentionPlan, plan_attention
from nest_model.model.attention.sdpa import SdpaPlan
from nest_model.model.flat import FlatEncoder, Planner
from nest_model.model.layers import Attention

MULTIPLE = 8


def num_features(d_head: int) -> int:
    """Return the number of random features of a head: the next multiple of 8 from d_head · ln d_head."""
    return MULTIPLE * max(1, math.ceil(d_head * math.log(d_head) / MULTIPLE))


def draw_directions(features: int, d_head: int) -> Tensor:
    """Return normally distributed directions [features, d_head], orthogonal within each block of d_head of them."""
    blocks = -(-features // d_head)
    rotations, triangles = torch.linalg.qr(torch.randn(blocks, d_head, d_head))
    # the signs that QR gives favour half a sphere
    rotations = rotations * triangles.diagonal(dim1=-2, dim2=-1).sign()[:, None]
    lengths = torch.randn(features, d_head).norm(dim=1, keepdim=True)
    directions: Tensor = rotations.flatten(0, 1)[:features] * lengths
    return directions


def attend_by_features(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, directions: Tensor
) -> Tensor:
    """Return φ(q) · (φ(k)ᵀ v) / (φ(q) · Σ φ(k)) where φ(x) = exp(direction · x − |x|² / 2) and x = row / d_head^¼.

    What multiplies all features of a query cancels, so |q|² / 2 is left out. A feature's greatest exponent over the
    keys moves from these to the queries, whose features then sum to 1: no divisor is below 1, and nothing overflows.

    Args:
        query, key, value: [pieces, heads, slots, d_head].
        mask: [pieces, 1, 1, keys], −∞ for a key that is none; None: all 0.
        directions: [features, d_head].
    """
    scale = query.shape[-1] ** -0.25
    of_query, of_key = query * scale @ directions.mT, key * scale @ directions.mT
    of_key = of_key - (key * scale).square().sum(-1, keepdim=True) / 2
    if mask is not None:
        of_key = of_key + mask.mT.to(of_key.dtype)
    greatest = of_key.detach().amax(-2, keepdim=True)
    of_key, of_query = (of_key - greatest).exp(), (of_query + greatest).softmax(-1)
    outputs: Tensor = of_query @ (of_key.mT @ value) / (of_query @ of_key.sum(-2).unsqueeze(-1))
    return outputs


@dataclass(frozen=True)
class FeaturePlan:
    """Attention by a block's random features within pieces, in at least float32; an AttentionPlan."""

    buckets: SdpaPlan
    directions: Tensor  # [features, d_head]

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attend within each piece; see AttentionPlan."""
        wide = torch.promote_types(query.dtype, torch.float32)
        attend = partial(attend_by_features, directions=self.directions.to(wide))
        with torch.autocast(query.device.type, enabled=False):
            rows = (part.to(wide) for part in (query, key, value))
            return self.buckets.by_bucket(attend, *rows).to(query.dtype)


class PerformerAttention(Attention):
    """Attention by random features of directions that all heads share, drawn with the weights and never again."""

    directions: Tensor  # [features, d_head]

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__(d_model, heads)
        d_head = d_model // heads
        self.register_buffer("directions", draw_directions(num_features(d_head), d_head))

    def forward(
        self, rows: Tensor, plan: AttentionPlan, rotation: Tensor | None, query_rows: Tensor | None = None
    ) -> Tensor:
        """Return the attention output at the query rows; the plan is an SdpaPlan, see EncoderBlock."""
        by_features = FeaturePlan(cast("SdpaPlan", plan), self.directions)
        return super().forward(rows, by_features, rotation, query_rows)


class Performer(FlatEncoder):
    """BERT with attention by random features."""

    system = "performer"
    attention = PerformerAttention

    def planner(self, batch: PackedBatch) -> Planner:
        """Return what sorts a batch's patients into buckets."""
        return partial(plan_attention, backend="sdpa")


ENCODER = Performer
