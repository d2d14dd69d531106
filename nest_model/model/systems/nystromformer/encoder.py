"""Nyströmformer: attention of all rows of a patient through landmarks, after Xiong et al. 2021 (arXiv 2102.03902).

Landmarks are the means of near-equal runs of rows. softmax(q k̃ᵀ) · softmax(q̃ k̃ᵀ)⁺ · softmax(q̃ kᵀ) · v, without the
convolution beside it, is attention of landmarks to rows, a product with an inverse, and attention of rows to landmarks.
"""

from dataclasses import dataclass
from functools import partial
from typing import Self

import torch
from torch import Tensor

from nest_model.data.packed import PackedBatch
from nest_model.data.packed import offsets as offsets_of
from nest_model.model.attention import AttentionPlan, plan_cross_attention
from nest_model.model.attention.sdpa import SdpaPlan
from nest_model.model.flat import FlatEncoder, Planner, numbers_within
from nest_model.model.gather import take
from nest_model.model.layers import Attention

LANDMARKS = 64
ITERATIONS = 6


def pseudo_inverse(matrix: Tensor, iterations: int) -> Tensor:
    """Approximate the Moore-Penrose inverse of [..., m, m], with four products per iteration (equation 11).

    Each matrix is scaled by itself; rows and columns of zeros stay zeros, and the rest is as without them.
    """
    columns, rows = (matrix.abs().sum(axis).amax(-1)[..., None, None] for axis in (-2, -1))
    inverse = matrix.mT / (columns * rows)
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    for _ in range(iterations):
        product = matrix @ inverse
        inner = 15 * identity - product @ (7 * identity - product)
        inverse = 0.25 * inverse @ (13 * identity - product @ inner)
    return inverse


def solve(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, iterations: int) -> Tensor:
    """Return softmax(query · keyᵀ / √d_head)⁺ · value of landmarks in a bucket, [pieces, heads, slots, d_head].

    Args:
        mask: [pieces, 1, 1, slots], −∞ in an empty slot; None: all 0.
    """
    scores = query @ key.mT * query.shape[-1] ** -0.5
    if mask is None:
        return pseudo_inverse(scores.softmax(-1), iterations) @ value
    mask = mask.to(scores.dtype)
    shares = (scores + mask).softmax(-1) * mask.exp().mT
    return pseudo_inverse(shares, iterations) @ value


@dataclass(frozen=True)
class LandmarkPlan:
    """Attention through landmarks within pieces, in at least float32; an AttentionPlan.

    It takes the queries of all rows, since landmarks are their means, and returns the outputs of those that are asked.
    """

    landmark_of_row: Tensor  # i64 [rows]
    rows_of_landmark: Tensor  # i64 [landmarks], how many
    query_rows: Tensor | None  # i64 [queries]; None: all rows
    to_rows: AttentionPlan  # of landmarks
    among: SdpaPlan  # landmarks
    to_landmarks: AttentionPlan  # of the query rows
    iterations: int

    @classmethod
    def build(
        cls,
        offsets: Tensor,
        *,
        is_query: Tensor | None = None,
        dtype: torch.dtype = torch.float32,
        landmarks: int = LANDMARKS,
        iterations: int = ITERATIONS,
    ) -> Self:
        """Plan min(landmarks, rows) landmarks for each piece; see `plan_attention`."""
        lengths = offsets.diff()
        counts = lengths.clamp(max=landmarks)
        mark_offsets = offsets_of(counts)
        rows, marks, first = (
            part.repeat_interleave(lengths) for part in (lengths, counts, mark_offsets[:-1])
        )
        # run j of m in n rows: those from ⌊j n / m⌋ to ⌊(j + 1) n / m⌋
        landmark_of_row = first + ((numbers_within(offsets) + 1) * marks - 1) // rows
        query_offsets = offsets if is_query is None else offsets_of(is_query.long())[offsets]
        wide = torch.promote_types(dtype, torch.float32)
        return cls(
            landmark_of_row,
            landmark_of_row.bincount(minlength=int(mark_offsets[-1])),
            None if is_query is None else is_query.nonzero().squeeze(1),
            plan_cross_attention(mark_offsets, offsets, dtype=wide),
            SdpaPlan.build(mark_offsets, None, None),
            plan_cross_attention(query_offsets, mark_offsets, dtype=wide),
            iterations,
        )

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attend within each piece: query, key, value [rows, heads, d_head] → [queries, heads, d_head]."""
        dtype, wide = query.dtype, torch.promote_types(query.dtype, torch.float32)
        with torch.autocast(query.device.type, enabled=False):
            query, key, value = (part.to(wide) for part in (query, key, value))
            query_marks, key_marks = self._means(query), self._means(key)
            values = self.to_rows.attend(query_marks, key, value)
            values = self.among.by_bucket(
                partial(solve, iterations=self.iterations), query_marks, key_marks, values
            )
            if self.query_rows is not None:
                query = take(query, self.query_rows)
            return self.to_landmarks.attend(query, key_marks, values).to(dtype)

    def _means(self, rows: Tensor) -> Tensor:
        sums = rows.new_zeros(len(self.rows_of_landmark), *rows.shape[1:])
        return sums.index_add(0, self.landmark_of_row, rows) / self.rows_of_landmark[:, None, None]


class NystromAttention(Attention):
    """Attention through landmarks, whose plan takes the queries of all rows."""

    def forward(
        self, rows: Tensor, plan: AttentionPlan, rotation: Tensor | None, query_rows: Tensor | None = None
    ) -> Tensor:
        """Return the attention output at the query rows; the plan is a LandmarkPlan, see EncoderBlock."""
        return super().forward(rows, plan, rotation)


class Nystromformer(FlatEncoder):
    """BERT with attention through landmarks."""

    system = "nystromformer"
    attention = NystromAttention

    def planner(self, batch: PackedBatch) -> Planner:
        """Return what plans the landmarks of a batch's patients."""
        return LandmarkPlan.build


ENCODER = Nystromformer
