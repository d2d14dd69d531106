"""HEART: relations of the tokens of a set steer its attention; sets attend to each other (Huang et al. 2024).

Huang et al., HEART, J. Biomed. Inform. 159, 104741 (2024): two tokens n and m of a set, of kinds s and t, have the
relation r_nm = P_l A_s x_n + P_r B_t x_m + b, a short vector made once, from their embeddings. Each layer norms it,
adds a linear score of it to the attention's score, and a linear map of it to the attention's value.

The vectors r_nm never exist: a norm needs only their variances, and score and value are sums of a part of n and a part
of m, each divided by the deviation of the pair. That takes one number a pair instead of a vector, and is exact.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.data.packed import offsets as offsets_of
from nest_model.model.attention import AttentionPlan, plan_attention
from nest_model.model.attention.sdpa import SdpaPlan
from nest_model.model.encoder import ReadRows
from nest_model.model.flat import numbers_within
from nest_model.model.gather import take
from nest_model.model.kinds import NUM_KINDS, KindAwareEncoder
from nest_model.model.layers import Attention, EncoderBlock, compute_dtype, initialise, rotation


def relation_width(d_model: int) -> int:
    """Return the width of a relation: the first power of two from √d_model on, 32 for the paper's 768."""
    return 1 << ((d_model - 1).bit_length() + 1) // 2


class Relation(nn.Module):
    """The two parts of a relation, each by a map of the token's kind and a map to the relation's width e.

    2 · kinds · d² + (2 d + 1) e parameters.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        width = relation_width(d_model)
        self.left_maps = nn.Parameter(torch.randn(NUM_KINDS, d_model, d_model) * d_model**-0.5)
        self.right_maps = nn.Parameter(torch.randn(NUM_KINDS, d_model, d_model) * d_model**-0.5)
        self.left = nn.Linear(d_model, width, bias=False)
        self.right = nn.Linear(d_model, width)

    def forward(self, token_vectors: Tensor, kinds: Tensor) -> tuple[Tensor, Tensor]:
        """Return the parts of a token as query and as key, [rows, e] each, in at least float32 and centred over e.

        Args:
            token_vectors: [rows, d_model]. kinds: i64 [rows].
        """
        with torch.autocast(token_vectors.device.type, enabled=False):
            rows = token_vectors.to(torch.promote_types(token_vectors.dtype, torch.float32))
            left = _by_kind(rows, kinds, self.left.weight @ self.left_maps)
            right = _by_kind(rows, kinds, self.right.weight @ self.right_maps) + self.right.bias
            return left - left.mean(1, keepdim=True), right - right.mean(1, keepdim=True)


def _by_kind(rows: Tensor, kinds: Tensor, maps: Tensor) -> Tensor:
    """Return each row under the map of its kind: [rows, d], i64 [rows], [kinds, e, d] → [rows, e]."""
    outputs = rows.new_zeros(len(rows), maps.shape[1])
    for kind, linear in enumerate(maps):
        places = (kinds == kind).nonzero().squeeze(1)
        outputs = outputs.index_copy(0, places, take(rows, places) @ linear.T)
    return outputs


@dataclass(frozen=True)
class RowPairs:
    """The relations of all pairs of rows in a set, without their vectors; in each bucket of the plan."""

    plan: SdpaPlan
    left: tuple[Tensor, ...]  # [pieces, 1, queries, e]
    right: tuple[Tensor, ...]  # [pieces, 1, keys, e]
    inverse_deviations: tuple[Tensor, ...]  # [pieces, 1, queries, keys]: 1 / √(variance + ε)

    @classmethod
    def of(cls, left: Tensor, right: Tensor, offsets: Tensor, query_rows: Tensor | None = None) -> Self:
        """Pair the rows of each set.

        Args:
            left, right: [rows, e], see Relation. offsets: i64 [sets + 1], in rows.
            query_rows: i64 [queries], rising; None: all rows.
        """
        query_offsets = None
        if query_rows is not None:
            is_query = torch.zeros(len(left), dtype=torch.bool, device=left.device)
            query_offsets = offsets_of(is_query.index_fill_(0, query_rows, True).long())[offsets]
            left = take(left, query_rows)
        plan = SdpaPlan.build(offsets, None, query_offsets)
        lefts, rights = plan.queries.fill(left[:, None]), plan.keys.fill(right[:, None])
        parts = (_inverse_deviation(*parts) for parts in zip(lefts, rights, strict=True))
        return cls(plan, lefts, rights, tuple(parts))


_EPSILON = 1e-5


def _inverse_deviation(left: Tensor, right: Tensor) -> Tensor:
    """Return 1 / √(variance + ε) of each sum of a query's and a key's part, which are centred."""
    with torch.autocast(left.device.type, enabled=False):
        squares = left.square().sum(-1, keepdim=True) + right.square().sum(-1, keepdim=True).mT
        variance = (squares + 2 * left @ right.mT) / left.shape[-1]
        return (variance.clamp(min=0) + _EPSILON).rsqrt()


class RelationReader(nn.Module):
    """What a layer reads from relations: their norm, a score, and a value for each head; (3 + d) e + 1 parameters.

    The score's bias cancels in the softmax; the paper has it.
    """

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        width = relation_width(d_model)
        self.heads = heads
        self.norm = nn.LayerNorm(width, eps=_EPSILON)
        self.score = nn.Linear(width, 1)
        self.value = nn.Linear(width, d_model, bias=False)

    def attend(
        self,
        rows: tuple[Tensor, Tensor, Tensor],
        relation: tuple[Tensor, Tensor, Tensor],
        mask: Tensor | None,
    ) -> Tensor:
        """Return softmax(query · key / √d_head + score) · (value + value of the relation) in a bucket.

        Args:
            rows: queries, keys and values, [pieces, heads, slots, d_head] each.
            relation: a bucket's `left`, `right` and `inverse_deviations`, see RowPairs.
            mask: [pieces, 1, 1, keys], added to the scores; None: all 0.
        """
        left, right, inverse_deviation = relation
        query, key, value = (part.to(left.dtype) for part in rows)
        slope, shift = (self.score.weight * self.norm.weight).T, self.score(self.norm.bias)
        scores = (query @ key.mT) * query.shape[-1] ** -0.5
        scores = scores + ((left @ slope + (right @ slope).mT) * inverse_deviation + shift)
        shares = (scores if mask is None else scores + mask.to(scores.dtype)).softmax(-1)
        relation_shares = shares * inverse_deviation
        mean = left * relation_shares.sum(-1, keepdim=True) + relation_shares @ right
        mean_relation = self.norm.weight * mean + self.norm.bias
        value_maps = self.value.weight.unflatten(0, (self.heads, -1))
        outputs: Tensor = shares @ value + mean_relation @ value_maps.mT
        return outputs


@dataclass(frozen=True)
class RelationPlan:
    """Attention within sets that a layer's relations steer; an AttentionPlan.

    What it computes for pairs is computed again in the backward pass, so that only one layer's numbers exist at a time.
    """

    pairs: RowPairs
    reader: RelationReader

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attend within each set; see AttentionPlan."""
        if not len(query):
            return query
        plan = self.pairs.plan
        rows = zip(plan.queries.fill(query), plan.keys.fill(key), plan.keys.fill(value), strict=True)
        relations = zip(self.pairs.left, self.pairs.right, self.pairs.inverse_deviations, strict=True)
        with torch.autocast(query.device.type, enabled=False):
            outputs = [
                checkpoint(self.reader.attend, *bucket, use_reentrant=False, preserve_rng_state=False)
                for bucket in zip(rows, relations, plan.masks, strict=True)
            ]
        return plan.queries.empty(outputs).to(query.dtype)


@dataclass(frozen=True)
class HeartLayerContext:
    """What the layers share: pairs of rows in sets, and the attention of [CLS] rows within a patient."""

    pairs: RowPairs
    query_rows: Tensor | None  # i64 [queries], those a layer returns; None: all
    cls_places: Tensor  # i64 [sets], of the [CLS] rows among these
    subject_plan: AttentionPlan
    set_rotation: Tensor  # complex [sets, d_head / 2]


class HeartLayer(nn.Module):
    """A block over the rows of each set, with their relations, then attention over the [CLS] rows of each patient."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.set_wise = EncoderBlock(config.d_model, config.heads, config.d_ff)
        self.relation = RelationReader(config.d_model, config.heads)
        self.cross_set_norm = nn.LayerNorm(config.d_model, bias=False)
        self.cross_set = Attention(config.d_model, config.heads)

    def forward(self, rows: Tensor, context: HeartLayerContext) -> Tensor:
        """Return the layer's output at the query rows, [queries, d_model]."""
        plan = RelationPlan(context.pairs, self.relation)
        rows = self.set_wise(rows, plan, None, context.query_rows)
        sets = take(rows, context.cls_places)
        update = self.cross_set(self.cross_set_norm(sets), context.subject_plan, context.set_rotation)
        return rows.index_copy_(0, context.cls_places, sets + update)


class Heart(KindAwareEncoder):
    """HEART with the tied token head; a set has no order and no times, and sets are placed by their number."""

    system = "heart"
    depends_on = frozenset[str]()

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.relation = Relation(config.d_model)
        layers = nn.ModuleList(HeartLayer(config) for _ in range(config.layers))
        self.layers = cast("Sequence[HeartLayer]", layers)
        self.norm = nn.LayerNorm(config.d_model, bias=False)
        initialise(self, [layer.set_wise for layer in self.layers])
        with torch.no_grad():
            for layer in self.layers:
                layer.cross_set.out.weight /= math.sqrt(2 * config.layers)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)

    @classmethod
    def num_parameters(cls, config: ModelConfig) -> int:
        """Return the number of parameters of a model of this shape, without building it."""
        d, e = config.d_model, relation_width(config.d_model)
        relation = 2 * NUM_KINDS * d * d + (2 * d + 1) * e
        block = 4 * d * d + 3 * d * config.d_ff + 2 * d
        layer = block + 4 * d * d + d + (3 + d) * e + 1
        return config.vocab_size * d + relation + config.layers * layer + d

    def read(self, batch: PackedBatch, rows: Tensor) -> ReadRows:
        """Return the given rows, i64 [any], after the final norm; the last layer computes these and [CLS] alone."""
        is_read = torch.zeros(len(batch.tokens), dtype=torch.bool, device=rows.device)
        is_cls = is_read.index_fill(0, batch.cls_rows, True)
        is_read.index_fill_(0, rows, True)
        hidden_states: Tensor = self.embedding(batch.tokens)
        left, right = self.relation(hidden_states, self.kind_of_token[batch.tokens])
        context = HeartLayerContext(
            RowPairs.of(left, right, batch.set_offsets),
            None,
            batch.cls_rows,
            plan_attention(batch.subject_offsets, dtype=compute_dtype(hidden_states)),
            self._set_rotation(batch),
        )
        for layer in self.layers[:-1]:
            hidden_states = layer(hidden_states, context)
        query_rows = (is_read | is_cls).nonzero().squeeze(1)
        last_context = replace(
            context,
            pairs=RowPairs.of(left, right, batch.set_offsets, query_rows),
            query_rows=query_rows,
            cls_places=is_cls[query_rows].nonzero().squeeze(1),
        )
        hidden_states = self.layers[-1](hidden_states, last_context)
        hidden_states = take(hidden_states, is_read[query_rows].nonzero().squeeze(1))
        return ReadRows(self.norm(hidden_states), (is_read.cumsum(0) - 1).index_select(0, rows))

    def _set_rotation(self, batch: PackedBatch) -> Tensor:
        """Return the rotary factors of each set's number within its patient."""
        d_head = self.config.d_model // self.config.heads
        return rotation(numbers_within(batch.subject_offsets), d_head, self.embedding.weight.dtype)

    def parts(self) -> dict[str, list[nn.Module]]:
        """Return the embedding with the relations, the set-wise blocks and the attention across sets."""
        return {
            "embedding": [self.embedding, self.relation],
            "swe": [part for layer in self.layers for part in (layer.set_wise, layer.relation)],
            "cse": [part for layer in self.layers for part in (layer.cross_set_norm, layer.cross_set)],
        }

    def units(self) -> Sequence[HeartLayer]:
        """Return the layers."""
        return self.layers


ENCODER = Heart
