"""Two arrangements of the same NestLayers: interleaved, as in NEST, or all set-wise blocks before all cross-set blocks.

Only the order of the calls differs; the parameters, their names and their initial values are the same.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from benchmarks.simulation.pooling import PoolingByAttention
from nest_model.config import ModelConfig
from nest_model.data.packed import offsets
from nest_model.model.attention import AttentionPlan, plan_attention
from nest_model.model.gather import take
from nest_model.model.layers import initialise, rotation
from nest_model.model.systems.nest.encoder import LayerContext, NestLayer

Arrangement = Literal["interleaved", "sequential"]
ARRANGEMENTS: tuple[Arrangement, ...] = get_args(Arrangement)

ReadoutRows = Literal["sets", "rows"]  # the [CLS] row of each set, as in NEST, or every row of the patient


@dataclass(frozen=True)
class AttentionPieces:
    """The attention plans of a batch whose patients all have the same shape."""

    cls_rows: Tensor  # i64 [sets]
    attending: LayerContext
    cls_asking: AttentionPlan  # as attending.set_plan, of the [CLS] rows' queries alone

    @classmethod
    @lru_cache(maxsize=4)  # the same for every training step
    def of(cls, subjects: int, sets: int, rows_per_set: int, d_head: int) -> "AttentionPieces":
        set_offsets = offsets(torch.full((subjects * sets,), rows_per_set))
        positions = torch.arange(sets).repeat(subjects)  # pos_i = i
        is_cls = torch.arange(rows_per_set).repeat(subjects * sets) == 0
        return cls(
            cls_rows=set_offsets[:-1],
            attending=LayerContext(
                set_plan=plan_attention(set_offsets),
                set_rotation=None,
                subject_plan=plan_attention(offsets(torch.full((subjects,), sets))),
                subject_rotation=rotation(positions, d_head, torch.float32),
            ),
            cls_asking=plan_attention(set_offsets, is_query=is_cls),
        )


class Regressor(nn.Module):
    """A regression model: an encoder of either arrangement, pooling over its rows, and a linear head."""

    def __init__(self, arrangement: Arrangement, readout_rows: ReadoutRows, config: ModelConfig) -> None:
        super().__init__()
        self.arrangement, self.pooled, self.d_head = arrangement, readout_rows, config.d_model // config.heads
        self.cls = nn.Parameter(torch.randn(config.d_model) * config.d_model**-0.5)
        layers = [NestLayer(config) for _ in range(config.layers)]
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(config.d_model, bias=False)
        self.readout = PoolingByAttention(config.d_model, config.heads)
        self.head = nn.Linear(config.d_model, 1)
        blocks = [block for layer in layers for block in (layer.set_wise, layer.cross_set)]
        initialise(self, blocks)

    def forward(self, events: Tensor) -> Tensor:
        """Map events [subjects, sets, events, d_model] to [subjects]."""
        subjects, sets, per_set, d_model = events.shape
        pieces = AttentionPieces.of(subjects, sets, per_set + 1, self.d_head)
        rows = torch.cat([self.cls.expand(subjects, sets, 1, d_model), events], dim=2).flatten(0, 2)
        encode = self._interleaved if self.arrangement == "interleaved" else self._sequential
        outputs = self.norm(encode(rows, pieces)).unflatten(0, (subjects, -1))
        return self.head(self.readout(outputs)).squeeze(-1)

    def _interleaved(self, rows: Tensor, pieces: AttentionPieces) -> Tensor:
        """Apply SWE, CSE, SWE, CSE …, as in NestModel."""
        for layer in self.layers[:-1]:
            rows = layer(rows, pieces.cls_rows, pieces.attending)
        return self._end(rows, pieces, self.layers[-1:])

    def _sequential(self, rows: Tensor, pieces: AttentionPieces) -> Tensor:
        """Apply SWE, SWE …, CSE, CSE …, so that no event depends on another set."""
        for layer in self.layers[:-1]:
            rows = layer.set_wise(rows, pieces.attending.set_plan, None)
        return self._end(rows, pieces, self.layers)

    def _end(self, rows: Tensor, pieces: AttentionPieces, cross_layers: nn.ModuleList) -> Tensor:
        """Return the rows to be pooled, after the last SWE and then the CSEs of these layers.

        If only sets are pooled, the last SWE computes the [CLS] rows alone.
        """
        set_wise, cls_rows = self.layers[-1].set_wise, pieces.cls_rows
        if self.pooled == "sets":
            return _cross(set_wise(rows, pieces.cls_asking, None, cls_rows), pieces.attending, cross_layers)
        rows = set_wise(rows, pieces.attending.set_plan, None)
        return rows.index_copy(0, cls_rows, _cross(take(rows, cls_rows), pieces.attending, cross_layers))


def _cross(sets: Tensor, context: LayerContext, layers: nn.ModuleList) -> Tensor:
    for layer in layers:
        sets = layer.cross_set(sets, context.subject_plan, context.subject_rotation)
    return sets
