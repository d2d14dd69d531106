"""NEST: set-wise and cross-set blocks interleaved, on packed rows; and its ablations, without the one or the other."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.model.attention import AttentionPlan, plan_attention
from nest_model.model.encoder import Encoder, ReadRows
from nest_model.model.gather import take
from nest_model.model.heads import SetHead
from nest_model.model.layers import EncoderBlock, Time2Vec, compute_dtype, initialise, rotation
from nest_model.model.systems.nest.earlier_times import EarlierTimes
from nest_model.model.weights import Conversion


@dataclass(frozen=True)
class LayerContext:
    """What all layers share: the attention plans and rotary positions of the blocks they have."""

    set_plan: AttentionPlan | None  # None: no set-wise attention
    set_rotation: Tensor | None
    subject_plan: AttentionPlan | None  # None: no cross-set attention
    subject_rotation: Tensor | None
    set_means: "SetMeans | None" = None  # None: set-wise attention


@dataclass(frozen=True)
class SetMeans:
    """The weights of the mean of each set's rows without its [CLS]: a row counts for as many as it stands for."""

    set_of_row: Tensor  # i64 [rows]
    weights: Tensor  # f64 [rows], 0 for a [CLS]; they sum to 1 in each set that has another row
    sets: int

    @classmethod
    def of(cls, batch: PackedBatch) -> "SetMeans":
        """Weigh the rows of a batch by e^key_bias."""
        set_of_row = batch.set_of_row
        weights = batch.key_bias.exp().index_fill(0, batch.cls_rows, 0.0)
        sums = weights.new_zeros(batch.sets).index_add_(0, set_of_row, weights)
        return cls(set_of_row, weights / sums.where(sums > 0, 1.0)[set_of_row], batch.sets)

    def of_rows(self, rows: Tensor) -> Tensor:
        """Return the mean of each set, 0 for a set of its [CLS] alone: [rows, d_model] → [sets, d_model]."""
        terms = rows * self.weights.to(rows.dtype)[:, None]
        return rows.new_zeros(self.sets, rows.shape[1]).index_add(0, self.set_of_row, terms)


class Layer(nn.Module, ABC):
    """A layer of NEST; its blocks are its children, in the order of their work."""

    @abstractmethod
    def forward(self, rows: Tensor, cls_rows: Tensor, context: LayerContext) -> Tensor:
        """Return all rows, [rows, d_model]."""

    @abstractmethod
    def read(self, rows: Tensor, batch: PackedBatch, is_output: Tensor, context: LayerContext) -> Tensor:
        """Return the output rows alone, computing only what they attend to.

        Args:
            is_output: bool [rows], the rows to return.
        """


class NestLayer(Layer):
    """A set-wise block over the rows of each set, then a cross-set block over the [CLS] rows of each patient."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.set_wise = EncoderBlock(config.d_model, config.heads, config.d_ff)
        self.cross_set = EncoderBlock(config.d_model, config.heads, config.d_ff)

    def forward(self, rows: Tensor, cls_rows: Tensor, context: LayerContext) -> Tensor:
        """Return all rows, [rows, d_model]."""
        rows = self.set_wise(rows, context.set_plan, context.set_rotation)
        sets = self.cross_set(take(rows, cls_rows), context.subject_plan, context.subject_rotation)
        return rows.index_copy_(
            0, cls_rows, sets
        )  # in place: autograd saved no reference to the sum in `rows`

    def read(self, rows: Tensor, batch: PackedBatch, is_output: Tensor, context: LayerContext) -> Tensor:
        """Return the output rows alone; see Layer."""
        is_cls = torch.zeros_like(is_output).index_fill_(0, batch.cls_rows, True)
        query_rows = (is_output | is_cls).nonzero().squeeze(1)
        dtype = compute_dtype(rows)
        set_plan = plan_attention(batch.set_offsets, batch.key_bias, is_query=is_output | is_cls, dtype=dtype)
        rows = self.set_wise(rows, set_plan, context.set_rotation, query_rows)
        cls_rows, is_output_query = is_cls[query_rows].nonzero().squeeze(1), is_output[query_rows]
        is_output_set = is_output_query[cls_rows]
        subject_plan = plan_attention(batch.subject_offsets, is_query=is_output_set, dtype=dtype)
        sets = self.cross_set(
            take(rows, cls_rows),
            subject_plan,
            context.subject_rotation,
            is_output_set.nonzero().squeeze(1),
        )
        return take(rows.index_copy_(0, cls_rows[is_output_set], sets), is_output_query.nonzero().squeeze(1))


class SetWiseLayer(Layer):
    """The layer of the ablation without cross-set blocks: a set-wise block over the rows of each set."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.set_wise = EncoderBlock(config.d_model, config.heads, config.d_ff)

    def forward(self, rows: Tensor, cls_rows: Tensor, context: LayerContext) -> Tensor:
        """Return all rows, [rows, d_model]."""
        outputs: Tensor = self.set_wise(rows, context.set_plan, context.set_rotation)
        return outputs

    def read(self, rows: Tensor, batch: PackedBatch, is_output: Tensor, context: LayerContext) -> Tensor:
        """Return the output rows alone; see Layer."""
        plan = plan_attention(
            batch.set_offsets, batch.key_bias, is_query=is_output, dtype=compute_dtype(rows)
        )
        outputs: Tensor = self.set_wise(rows, plan, context.set_rotation, is_output.nonzero().squeeze(1))
        return outputs


class MeanPoolLayer(Layer):
    """The layer of the ablation without set-wise blocks: a [CLS] adds the mean of its set's other rows to itself.

    The cross-set block then reads the [CLS] rows, and what it adds to a [CLS] is added to its set's other rows too: so
    they learn of the patient.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.cross_set = EncoderBlock(config.d_model, config.heads, config.d_ff)

    def forward(self, rows: Tensor, cls_rows: Tensor, context: LayerContext) -> Tensor:
        """Return all rows, [rows, d_model]."""
        assert context.set_means is not None
        set_vectors = take(rows, cls_rows) + context.set_means.of_rows(rows)
        sets = self.cross_set(set_vectors, context.subject_plan, context.subject_rotation)
        rows = rows + (sets - set_vectors).index_select(0, context.set_means.set_of_row)
        return rows.index_copy_(0, cls_rows, sets)  # in place, as in NestLayer

    def read(self, rows: Tensor, batch: PackedBatch, is_output: Tensor, context: LayerContext) -> Tensor:
        """Return the output rows alone; see Layer."""
        assert context.set_means is not None
        outputs = is_output.nonzero().squeeze(1)
        set_of_output = context.set_means.set_of_row.index_select(0, outputs)
        is_read = torch.zeros_like(batch.cls_rows, dtype=torch.bool).index_fill_(0, set_of_output, True)
        plan = plan_attention(batch.subject_offsets, is_query=is_read, dtype=compute_dtype(rows))
        read_sets = is_read.nonzero().squeeze(1)
        set_vectors = take(rows, batch.cls_rows) + context.set_means.of_rows(rows)
        sets = self.cross_set(set_vectors, plan, context.subject_rotation, read_sets)
        place = (is_read.cumsum(0) - 1).index_select(0, set_of_output)
        is_cls = (outputs == batch.cls_rows.index_select(0, set_of_output))[:, None]
        others = take(rows, outputs) + (sets - take(set_vectors, read_sets)).index_select(0, place)
        return torch.where(is_cls, sets.index_select(0, place), others)


def layer_class(config: ModelConfig) -> type[NestLayer | SetWiseLayer | MeanPoolLayer]:
    """Return the class of a config's layers: NEST's, or that of an ablation."""
    if config.set_wise == "mean_pool":
        return MeanPoolLayer
    return NestLayer if config.cross_set else SetWiseLayer


BLOCK_OF_PART = {"swe": "set_wise", "cse": "cross_set"}
"""The block of a layer by the name that freezing has for it."""


class NestModel(Encoder):
    """The encoder, its tied token head and its set head.

    Linear weights start as `initialise` says, the embedding with standard deviation 1 / √d_model; norms are 1.
    """

    system = "nest"
    depends_on = frozenset({"hours", "days"})
    unused_in_tasks = ("set_head.",)
    later_buffers = frozenset({"set_head.log_presence_ratio"})

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        units = config.time2vec.split("+") if config.time2vec else []
        self.time2vec = nn.ModuleDict(
            {unit: Time2Vec(config.d_model, config.time2vec_scale) for unit in units}
        )
        layers = nn.ModuleList(layer_class(config)(config) for _ in range(config.layers))
        self.layers = cast("Sequence[Layer]", layers)
        self.norm = nn.LayerNorm(config.d_model, bias=False)
        self.set_head = SetHead(config.d_model, config.vocab_size)
        initialise(self, [block for blocks in self._blocks.values() for block in blocks])
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
        if config.tied_set_head:  # only now, so that the random draws do not depend on it
            self.set_head.out.register_parameter("weight", None)

    @classmethod
    def num_parameters(cls, config: ModelConfig) -> int:
        """Return the number of parameters of a model of this shape, without building it."""
        d, vocab_size = config.d_model, config.vocab_size
        block = 4 * d * d + 3 * d * config.d_ff + 2 * d
        time2vec = 2 * d * len(config.time2vec.split("+")) if config.time2vec else 0
        set_head = d * d + 2 * d + (1 if config.tied_set_head else d + 1) * vocab_size
        blocks = (config.set_wise == "attention") + config.cross_set
        return vocab_size * d + time2vec + blocks * block * config.layers + d + set_head

    @classmethod
    def conversion(cls, stored_names: Collection[str], config: ModelConfig) -> Conversion:
        """Return how the weights of a file with these names become today's; see Encoder."""
        return EarlierTimes(config.d_model) if EarlierTimes.is_needed(stored_names) else Conversion()

    def forward(self, batch: PackedBatch) -> Tensor:
        """Return all rows after the final norm, [rows, d_model]; a set's output is at its `batch.cls_rows`."""
        read = self.read(batch, torch.arange(len(batch.tokens), device=batch.tokens.device))
        return read.hidden_states.index_select(0, read.place)

    def read(self, batch: PackedBatch, rows: Tensor) -> ReadRows:
        """Return the given rows, i64 [any], after the final norm, computing duplicates once."""
        shortcuts = self.config.shortcuts
        if shortcuts.merged_duplicates:
            batch, row_of = merge_duplicates(batch, hours_matter=self.config.timed_rows)
            rows = row_of.index_select(0, rows)
        is_output = torch.zeros(len(batch.tokens), dtype=torch.bool, device=rows.device).index_fill_(
            0, rows, True
        )
        place = (is_output.cumsum(0) - 1).index_select(0, rows)
        context = self.layer_context(batch)
        hidden_states = self.embed(batch)
        for layer in self.layers[:-1]:
            hidden_states = layer(hidden_states, batch.cls_rows, context)
        if shortcuts.pruned_last_layer and not is_output.all():
            hidden_states = self.layers[-1].read(hidden_states, batch, is_output, context)
        else:
            hidden_states = take(
                self.layers[-1](hidden_states, batch.cls_rows, context), is_output.nonzero().squeeze(1)
            )
        return ReadRows(self.norm(hidden_states), place)

    def parts(self) -> dict[str, list[nn.Module]]:
        """Return the embeddings of tokens and times, the set-wise and the cross-set blocks, as far as there are any."""
        return {"embedding": [self.embedding, self.time2vec]} | {
            part: list(blocks) for part, blocks in self._blocks.items() if blocks
        }

    @property
    def _blocks(self) -> dict[str, list[EncoderBlock]]:
        """The blocks by part, which is empty in its ablation."""
        return {
            part: [
                cast("EncoderBlock", getattr(layer, name)) for layer in self.layers if hasattr(layer, name)
            ]
            for part, name in BLOCK_OF_PART.items()
        }

    def units(self) -> Sequence[Layer]:
        """Return the layers."""
        return self.layers

    def layer_context(self, batch: PackedBatch) -> LayerContext:
        """Plan the attention of every layer: rows within their set, [CLS] rows within their patient."""
        weight, d_head = self.embedding.weight, self.config.d_model // self.config.heads
        dtype, pools = compute_dtype(weight), self.config.set_wise == "mean_pool"
        has_rotation, has_sets = self.config.set_position is not None and not pools, self.config.cross_set
        return LayerContext(
            None if pools else plan_attention(batch.set_offsets, batch.key_bias, dtype=dtype),
            rotation(batch.hours, d_head, weight.dtype) if has_rotation else None,
            plan_attention(batch.subject_offsets, dtype=dtype) if has_sets else None,
            rotation(batch.days, d_head, weight.dtype) if has_sets else None,
            SetMeans.of(batch) if pools else None,
        )

    def token_logits(self, hidden_states: Tensor) -> Tensor:
        """Return logits over the vocabulary by the tied embedding: [any, d_model] → [any, vocab_size]."""
        return F.linear(hidden_states, self.embedding.weight)

    def msm_logits(self, cls_hidden: Tensor) -> Tensor:
        """Return the set head's logits: [sets, d_model] → [sets, vocab_size]."""
        return F.linear(self.set_head.before_out(cls_hidden), self.set_weight, self.set_head.out.bias)

    def presence_scores(self, cls_hidden: Tensor) -> Tensor:
        """Return scores by which the tokens a set holds rank first: [sets, d_model] → [sets, vocab_size].

        The set head guesses shares of a set's events, of which a token that repeats has many. Each share is multiplied
        by how many of the training sets hold the token, relative to its mean share of a set.
        """
        return self.msm_logits(cls_hidden) + self.set_head.log_presence_ratio

    @property
    def set_weight(self) -> Tensor:
        """The weight of the set head's last Linear, [vocab_size, d_model]; if tied, the embedding's weight."""
        return self.embedding.weight if self.config.tied_set_head else self.set_head.out.weight

    def embed(self, batch: PackedBatch) -> Tensor:
        """Return the input of the first layer, [rows, d_model]."""
        rows: Tensor = self.embedding(batch.tokens)
        if "hours" in self.time2vec:
            rows = rows + self.time2vec["hours"](batch.hours)
        if "days" in self.time2vec:
            rows = rows + self.time2vec["days"](batch.days).index_select(0, batch.set_of_row)
        return rows


_TIME_BITS = 32


def merge_duplicates(batch: PackedBatch, *, hours_matter: bool) -> tuple[PackedBatch, Tensor]:
    """Merge equal rows of each set; return the smaller batch and the new row of each old row.

    The first of equal rows stays, in its place, and its key bias counts the others.

    Args:
        hours_matter: rows of a set with different hours are different.
    """
    kinds = batch.set_of_row * (int(batch.tokens.max()) + 1) + batch.tokens
    if hours_matter:
        if int(kinds.max()) >= 1 << (63 - _TIME_BITS):  # more sets than a batch ever has
            return batch, torch.arange(len(kinds), device=kinds.device)
        kinds = (kinds << _TIME_BITS) + batch.hours.view(torch.int32)
    _, kind_of_row, counts = torch.unique(kinds, return_inverse=True, return_counts=True)
    rows = torch.arange(len(kinds), device=kinds.device)
    if len(counts) == len(rows):
        return batch, rows
    first = torch.full_like(counts, len(rows)).scatter_reduce_(0, kind_of_row, rows, "amin")
    is_first = torch.zeros_like(rows, dtype=torch.bool).index_fill_(0, first, True)
    place = is_first.cumsum(0) - 1
    weights = torch.zeros_like(counts, dtype=torch.float64)
    weights.index_add_(0, kind_of_row, batch.key_bias.exp())
    ends = torch.cat([place.new_zeros(1), is_first.cumsum(0)])
    smaller = replace(
        batch,
        tokens=batch.tokens[is_first],
        hours=batch.hours[is_first],
        key_bias=weights[kind_of_row[is_first]].log(),
        set_offsets=ends[batch.set_offsets],
    )
    return smaller, place[first][kind_of_row]


ENCODER = NestModel
