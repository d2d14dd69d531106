"""NEST: set-wise and cross-set blocks interleaved, on packed rows."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nest_model.attention import AttentionPlan, plan_attention
from nest_model.batch import PackedBatch
from nest_model.config import ModelConfig
from nest_model.heads import SetHead
from nest_model.layers import Block, Time2Vec, rotation


class NestLayer(nn.Module):
    """A block among the rows of each set, then a block among the [CLS] rows of each subject."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.set_wise = Block(config.d_model, config.heads, config.d_ff)
        self.cross_set = Block(config.d_model, config.heads, config.d_ff)

    def forward(
        self,
        rows: Tensor,
        cls_rows: Tensor,
        set_plan: AttentionPlan,
        set_rotation: Tensor | None,
        subject_plan: AttentionPlan,
        subject_rotation: Tensor,
    ) -> Tensor:
        rows = self.set_wise(rows, set_plan, set_rotation)
        sets = self.cross_set(rows.index_select(0, cls_rows), subject_plan, subject_rotation)
        return rows.index_copy_(0, cls_rows, sets)  # in place: nothing saved the sum that `rows` is


class NestModel(nn.Module):
    """The encoder, its tied token head and its set head.

    Linear weights start normal with deviation 1 / √inputs, those that write to the residual stream divided by
    √(2 · blocks) besides, the embedding with 1 / √d_model; biases 0, norms 1. Drawn from torch's global
    generator.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        units = config.time2vec.split("+") if config.time2vec else []
        self.time2vec = nn.ModuleDict(
            {unit: Time2Vec(config.d_model, config.time2vec_scale) for unit in units}
        )
        self.layers = nn.ModuleList(NestLayer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.d_model, bias=False)
        self.set_head = SetHead(config.d_model, config.vocab_size)
        self._initialise()

    def forward(self, batch: PackedBatch) -> Tensor:
        """Return every row after the final norm, [rows, d_model]; a set is read at its `batch.cls_rows`."""
        config, dtype = self.config, self.embedding.weight.dtype
        d_head = config.d_model // config.heads
        set_plan = plan_attention(batch.set_offsets, batch.key_bias)
        set_rotation = rotation(batch.hours, d_head, dtype) if config.set_position else None
        subject_plan = plan_attention(batch.subject_offsets)
        subject_rotation = rotation(batch.days, d_head, dtype)
        rows = self._embed(batch)
        for layer in self.layers:
            rows = layer(rows, batch.cls_rows, set_plan, set_rotation, subject_plan, subject_rotation)
        return self.norm(rows)

    def token_logits(self, hidden: Tensor) -> Tensor:
        """Return logits over the vocabulary by the tied embedding: [any, d_model] → [any, vocab_size]."""
        return F.linear(hidden, self.embedding.weight)

    def msm_logits(self, cls_hidden: Tensor) -> Tensor:
        """Return the set head's logits: [sets, d_model] → [sets, vocab_size]."""
        return self.set_head(cls_hidden)

    def _embed(self, batch: PackedBatch) -> Tensor:
        rows = self.embedding(batch.tokens)
        if "hours" in self.time2vec:
            rows = rows + self.time2vec["hours"](batch.hours)
        if "days" in self.time2vec:
            rows = rows + self.time2vec["days"](batch.days).index_select(0, batch.set_of_row)
        return rows

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=module.in_features**-0.5)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.normal_(self.embedding.weight, std=self.config.d_model**-0.5)
        blocks = [block for layer in self.layers for block in (layer.set_wise, layer.cross_set)]
        with torch.no_grad():
            for block in blocks:
                for written in (block.attention.out, block.feed_forward.out):
                    written.weight /= math.sqrt(2 * len(blocks))
