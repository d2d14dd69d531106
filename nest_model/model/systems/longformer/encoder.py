"""Longformer: attention in a window, and of anchors to all rows, after Beltagy et al. 2020 (arXiv 2004.05150).

The anchors are the [CLS] rows. They attend to all rows of their patient by projections of their own (section 3.1,
"global attention"), and all rows attend to them: a row's softmax is over its window and the anchors, each counted once.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Self, cast

import torch
from torch import Tensor, nn

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.data.packed import offsets as offsets_of
from nest_model.model.attention import AttentionPlan, plan_attention
from nest_model.model.attention.sdpa import Slots, fused_attention
from nest_model.model.flat import FlatEncoder, Planner, numbers_within
from nest_model.model.gather import take
from nest_model.model.layers import Attention

WINDOW = 32
"""A row attends to the rows that are at most as many before or after it."""


@dataclass(frozen=True)
class WindowPlan:
    """Attention of queries to the rows near them and to their piece's anchors; an AttentionPlan.

    Pieces are cut into blocks of as many rows as the window reaches, so that what is near a query is in its own block
    or beside it.
    """

    blocks: Slots  # of rows
    queries: Slots  # of a block's queries
    anchors: Slots  # of a piece's anchors
    anchor_rows: Tensor  # i64 [anchors]
    piece_of_block: Tensor  # i64 [blocks]
    is_visible: Tensor  # bool [blocks, 1, slots of queries, 3 · window + slots of anchors]

    @classmethod
    def build(cls, offsets: Tensor, is_anchor: Tensor, query_rows: Tensor, window: int) -> Self:
        """Plan the attention of the query rows, i64 [queries], rising, at least one; see LongformerPlan."""
        counts = (offsets.diff() + window - 1) // window
        pieces = torch.repeat_interleave(counts)
        starts = torch.cat([offsets[pieces] + window * numbers_within(offsets_of(counts)), offsets[-1:]])
        blocks, queries = _one_bucket(starts), _one_bucket(torch.searchsorted(query_rows, starts))
        anchor_counts = offsets_of(is_anchor.long())[offsets].diff()
        anchors = _one_bucket(offsets_of(anchor_counts))

        is_key = torch.zeros_like(blocks.row_of_slot, dtype=torch.bool)
        is_key[blocks.slot_of_row] = ~is_anchor  # an anchor counts once, as such
        key_rows = blocks.row_of_slot.where(is_key, -1).view(*blocks.shapes[0])
        near = _with_neighbours(key_rows, -1, empty=-1)[:, None]  # the key in each slot, −1: none
        rows = query_rows[queries.row_of_slot].view(*queries.shapes[0], 1)
        first, end = offsets[pieces, None, None], offsets[pieces + 1, None, None]
        is_near = (near >= first) & (near < end) & ((near - rows).abs() <= window)
        slots = torch.arange(anchors.shapes[0][1], device=offsets.device)
        is_of_piece = (slots < anchor_counts[pieces, None])[:, None].expand(-1, rows.shape[1], -1)
        is_visible = torch.cat([is_near, is_of_piece], dim=-1)[:, None]
        return cls(blocks, queries, anchors, is_anchor.nonzero().squeeze(1), pieces, is_visible)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attend to what is visible; see AttentionPlan."""
        [queries] = self.queries.fill(query)
        return self.queries.empty(
            [fused_attention(queries, self._visible(key), self._visible(value), self.is_visible)]
        )

    def _visible(self, rows: Tensor) -> Tensor:
        """Return the keys near each block, and its anchors, [blocks, heads, 3 · window + anchors, d_head]."""
        [blocks], [anchors] = self.blocks.fill(rows), self.anchors.fill(take(rows, self.anchor_rows))
        near = _with_neighbours(blocks, -2, empty=0)
        return torch.cat([near, anchors.index_select(0, self.piece_of_block)], dim=-2)


def _one_bucket(offsets: Tensor) -> Slots:
    """Return the slots of pieces that all have as many as the longest."""
    pieces = len(offsets) - 1
    order = torch.arange(pieces, device=offsets.device)
    return Slots.lay_out(offsets, order, [(pieces, int(offsets.diff().max()))])


def _with_neighbours(blocks: Tensor, axis: int, *, empty: int) -> Tensor:
    """Return each block between the one before and the one after it, joined along the axis: [blocks, …]."""
    edge = torch.full_like(blocks[:1], empty)
    blocks_and_edges = torch.cat([edge, blocks, edge])
    return torch.cat([blocks_and_edges[:-2], blocks, blocks_and_edges[2:]], dim=axis)


@dataclass(frozen=True)
class LongformerPlan:
    """Attention in a window once it has a block's outputs for the anchors; an AttentionPlan then."""

    near: WindowPlan | None  # of the queries that are no anchors; None: all are
    far: AttentionPlan  # of the queries that are anchors, to all rows of their piece
    near_queries: Tensor  # i64, the places among the queries of those that are no anchors
    anchor_rows: Tensor  # i64, the rows of those that are
    order: Tensor  # i64 [queries], the place of each query among the near queries and then the anchors
    of_anchors: Tensor | None = None  # [queries that are anchors, heads, d_head]

    @classmethod
    def build(
        cls,
        offsets: Tensor,
        *,
        anchors: Tensor,
        window: int = WINDOW,
        is_query: Tensor | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Self:
        """Plan it; see `plan_attention`.

        Args:
            anchors: i64 [anchors], rows; every piece has one.
            window: how many rows before and after it a row attends to.
        """
        is_anchor = torch.zeros(int(offsets[-1]), dtype=torch.bool, device=offsets.device)
        is_anchor.index_fill_(0, anchors, True)
        is_query = torch.ones_like(is_anchor) if is_query is None else is_query
        near_rows = (is_query & ~is_anchor).nonzero().squeeze(1)
        anchor_rows = (is_query & is_anchor).nonzero().squeeze(1)
        place = is_query.cumsum(0) - 1
        return cls(
            WindowPlan.build(offsets, is_anchor, near_rows, window) if len(near_rows) else None,
            plan_attention(offsets, is_query=is_query & is_anchor, dtype=dtype),
            place[near_rows],
            anchor_rows,
            torch.cat([place[near_rows], place[anchor_rows]]).argsort(),
        )

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return the outputs of all queries; those of anchors are `of_anchors`."""
        assert self.of_anchors is not None, "the outputs of the anchors come first"
        near = take(query, self.near_queries)
        if self.near is not None:
            near = self.near.attend(near, key, value)
        return take(torch.cat([near, self.of_anchors]), self.order)


class LongformerAttention(Attention):
    """Attention in a window, with projections of the anchors' own: 3 d² more parameters."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__(d_model, heads)
        self.anchor_query_key_value = nn.Linear(d_model, 3 * d_model, bias=False)

    def forward(
        self, rows: Tensor, plan: AttentionPlan, rotation: Tensor | None, query_rows: Tensor | None = None
    ) -> Tensor:
        """Return the attention output at the query rows; the plan is a LongformerPlan, see EncoderBlock."""
        plan = cast("LongformerPlan", plan)
        anchors = self.project(self.anchor_query_key_value, rows, rotation, plan.anchor_rows)
        plan = replace(plan, of_anchors=plan.far.attend(*anchors))
        return super().forward(rows, plan, rotation, query_rows)


class Longformer(FlatEncoder):
    """BERT with attention in a window, and of [CLS] rows to all rows by projections of their own."""

    system = "longformer"
    attention = LongformerAttention

    @classmethod
    def num_parameters(cls, config: ModelConfig) -> int:
        """Return the number of parameters of a model of this shape, without building it."""
        return super().num_parameters(config) + 2 * config.layers * 3 * config.d_model**2

    def planner(self, batch: PackedBatch) -> Planner:
        """Return what plans the windows of a batch's patients, whose anchors are its [CLS] rows."""
        return partial(LongformerPlan.build, anchors=batch.cls_rows)


ENCODER = Longformer
