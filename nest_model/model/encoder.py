"""NEST: set-wise and cross-set blocks interleaved, on packed rows."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.model.attention import AttentionPlan, plan_attention
from nest_model.model.gather import take
from nest_model.model.heads import SetHead
from nest_model.model.layers import Block, Time2Vec, rotation

NO_ITEM = -1
"""What stands for a token that is no measured value."""


@dataclass(frozen=True)
class Read:
    """The rows a batch is read at, once each."""

    hidden: Tensor  # [different rows, d_model]
    place: Tensor  # i64 [rows asked for], which of them each is


@dataclass(frozen=True)
class Attending:
    """Who attends to whom in a layer, and at which positions."""

    set_plan: AttentionPlan
    set_rotation: Tensor | None
    subject_plan: AttentionPlan
    subject_rotation: Tensor


class NestLayer(nn.Module):
    """A block among the rows of each set, then a block among the [CLS] rows of each subject."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.set_wise = Block(config.d_model, config.heads, config.d_ff)
        self.cross_set = Block(config.d_model, config.heads, config.d_ff)

    def forward(self, rows: Tensor, cls_rows: Tensor, attending: Attending) -> Tensor:
        """Return every row, [rows, d_model]."""
        rows = self.set_wise(rows, attending.set_plan, attending.set_rotation)
        sets = self.cross_set(take(rows, cls_rows), attending.subject_plan, attending.subject_rotation)
        return rows.index_copy_(0, cls_rows, sets)  # in place: nothing saved the sum that `rows` is

    def read(self, rows: Tensor, batch: PackedBatch, wanted: Tensor, attending: Attending) -> Tensor:
        """Return the wanted rows alone; of the others only what these attend to is computed.

        Args:
            wanted: bool [rows].
        """
        is_cls = torch.zeros_like(wanted).index_fill_(0, batch.cls_rows, True)
        asking = (wanted | is_cls).nonzero().squeeze(1)
        dtype = computed_in(rows)
        set_plan = plan_attention(batch.set_offsets, batch.key_bias, asking=wanted | is_cls, dtype=dtype)
        rows = self.set_wise(rows, set_plan, attending.set_rotation, asking)
        cls_rows, is_wanted = is_cls[asking].nonzero().squeeze(1), wanted[asking]
        wanted_sets = is_wanted[cls_rows]
        subject_plan = plan_attention(batch.subject_offsets, asking=wanted_sets, dtype=dtype)
        sets = self.cross_set(
            take(rows, cls_rows),
            subject_plan,
            attending.subject_rotation,
            wanted_sets.nonzero().squeeze(1),
        )
        return take(rows.index_copy_(0, cls_rows[wanted_sets], sets), is_wanted.nonzero().squeeze(1))


class NestModel(nn.Module):
    """The encoder, its tied token head and its set head.

    Linear weights start normal with deviation 1 / √inputs, those that write to the residual stream divided by
    √(2 · blocks) besides, the embedding with 1 / √d_model; biases 0, norms 1. Drawn from torch's global
    generator. Beside the weights stands `item_of_token`, i64 [vocab_size]: which item a token measures, NO_ITEM of the
    others; none measures any until the vocabulary's are filled in.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.register_buffer("item_of_token", torch.full((config.vocab_size,), NO_ITEM))
        units = config.time2vec.split("+") if config.time2vec else []
        self.time2vec = nn.ModuleDict(
            {unit: Time2Vec(config.d_model, config.time2vec_scale) for unit in units}
        )
        self.layers = nn.ModuleList(NestLayer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.d_model, bias=False)
        self.set_head = SetHead(config.d_model, config.vocab_size)
        initialise(self, self.layers)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
        if config.tied_set_head:  # only now: what is drawn does not hang on it
            self.set_head.out.register_parameter("weight", None)

    def forward(self, batch: PackedBatch) -> Tensor:
        """Return every row after the final norm, [rows, d_model]; a set is read at its `batch.cls_rows`."""
        read = self.read(batch, torch.arange(len(batch.tokens), device=batch.tokens.device))
        return read.hidden.index_select(0, read.place)

    def read(self, batch: PackedBatch, rows: Tensor) -> Read:
        """Return the given rows, i64 [any], after the final norm; equal rows once."""
        shortcuts = self.config.shortcuts
        if shortcuts.merged_duplicates:
            batch, row_of = merge_duplicates(batch, timed=self.config.timed_rows)
            rows = row_of.index_select(0, rows)
        wanted = torch.zeros(len(batch.tokens), dtype=torch.bool, device=rows.device).index_fill_(
            0, rows, True
        )
        place = (wanted.cumsum(0) - 1).index_select(0, rows)
        attending = self.attending(batch)
        hidden = self.embed(batch)
        for layer in self.layers[:-1]:
            hidden = layer(hidden, batch.cls_rows, attending)
        if shortcuts.pruned_last_layer and not wanted.all():
            hidden = self.layers[-1].read(hidden, batch, wanted, attending)
        else:
            hidden = take(self.layers[-1](hidden, batch.cls_rows, attending), wanted.nonzero().squeeze(1))
        return Read(self.norm(hidden), place)

    def attending(self, batch: PackedBatch) -> Attending:
        """Return who attends to whom in every layer: rows in their set, [CLS] rows in their subject."""
        weight, d_head = self.embedding.weight, self.config.d_model // self.config.heads
        dtype = computed_in(weight)
        return Attending(
            plan_attention(batch.set_offsets, batch.key_bias, dtype=dtype),
            rotation(batch.hours, d_head, weight.dtype) if self.config.set_position else None,
            plan_attention(batch.subject_offsets, dtype=dtype),
            rotation(batch.days, d_head, weight.dtype),
        )

    def token_logits(self, hidden: Tensor) -> Tensor:
        """Return logits over the vocabulary by the tied embedding: [any, d_model] → [any, vocab_size]."""
        return F.linear(hidden, self.embedding.weight)

    def msm_logits(self, cls_hidden: Tensor) -> Tensor:
        """Return the set head's logits: [sets, d_model] → [sets, vocab_size]."""
        return F.linear(self.set_head.before_out(cls_hidden), self.set_weight, self.set_head.out.bias)

    @property
    def set_weight(self) -> Tensor:
        """The weight of the set head's last Linear, [vocab_size, d_model]: its own or, tied, the embedding's."""
        return self.embedding.weight if self.config.tied_set_head else self.set_head.out.weight

    def embed(self, batch: PackedBatch) -> Tensor:
        """Return the rows as they enter the first layer, [rows, d_model]."""
        rows = self.embedding(batch.tokens)
        if "hours" in self.time2vec:
            rows = rows + self.time2vec["hours"](batch.hours)
        if "days" in self.time2vec:
            rows = rows + self.time2vec["days"](batch.days).index_select(0, batch.set_of_row)
        return rows


def computed_in(rows: Tensor) -> torch.dtype:
    """Return the dtype that linear layers give these rows: autocast's, where it is on."""
    kind = rows.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else rows.dtype


def initialise(module: nn.Module, layers: Iterable[NestLayer]) -> None:
    """Draw every linear weight of a module that holds these layers, as NestModel says."""
    for linear in module.modules():
        if isinstance(linear, nn.Linear):
            nn.init.normal_(linear.weight, std=linear.in_features**-0.5)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)
    blocks = [block for layer in layers for block in (layer.set_wise, layer.cross_set)]
    with torch.no_grad():
        for block in blocks:
            for written in (block.attention.out, block.feed_forward.out):
                written.weight /= math.sqrt(2 * len(blocks))


_TIME_BITS = 32


def merge_duplicates(batch: PackedBatch, *, timed: bool) -> tuple[PackedBatch, Tensor]:
    """Return the batch with one row for each distinct token of a set, and for every row given the one it is now.

    The first of equal rows stays, in its place.

    Args:
        timed: the model tells rows of a set apart by their hours, too.
    """
    kinds = batch.set_of_row * (int(batch.tokens.max()) + 1) + batch.tokens
    if timed:
        if int(kinds.max()) >= 1 << (63 - _TIME_BITS):  # more sets than a batch ever has
            return batch, torch.arange(len(kinds), device=kinds.device)
        kinds = (kinds << _TIME_BITS) + batch.hours.view(torch.int32)
    _, kind_of_row, counts = torch.unique(kinds, return_inverse=True, return_counts=True)
    rows = torch.arange(len(kinds), device=kinds.device)
    if len(counts) == len(rows):
        return batch, rows
    first = torch.full_like(counts, len(rows)).scatter_reduce_(0, kind_of_row, rows, "amin")
    kept = torch.zeros_like(rows, dtype=torch.bool).index_fill_(0, first, True)
    place = kept.cumsum(0) - 1
    weights = torch.zeros_like(counts, dtype=torch.float64)
    weights.index_add_(0, kind_of_row, batch.key_bias.exp())
    ends = torch.cat([place.new_zeros(1), kept.cumsum(0)])
    merged = replace(
        batch,
        tokens=batch.tokens[kept],
        hours=batch.hours[kept],
        key_bias=weights[kind_of_row[kept]].log(),
        set_offsets=ends[batch.set_offsets],
    )
    return merged, place[first][kind_of_row]
