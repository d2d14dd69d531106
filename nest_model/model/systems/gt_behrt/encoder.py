"""GT-BEHRT: a graph transformer in each set, then BERT over the sets of a patient.

Poulain & Beheshti, Graph transformers on EHRs (ICLR 2024): the distinct codes of a set and a node of the set itself are
a graph in which every node is joined to every other. Edges have a type, by the kinds of their ends; the type's vector
is added to the key and to the value of the node at the other end. The set's node, joined with the type of visit, the
set's number, its days and its day of the year, is the set's row in BERT. A source may name no types of visit, and a
model may be trained without them: then four parts are joined.

An edge's vector depends on the node that attends and on the kind at the other end alone. So the part of a score, or of
a value, that comes from edges is a few more columns of queries, keys and values: nothing is made for each pair.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.data.packed import offsets as offsets_of
from nest_model.data.seqsets import NO_TYPE
from nest_model.model.attention import AttentionPlan, plan_attention
from nest_model.model.encoder import ReadRows
from nest_model.model.flat import numbers_within
from nest_model.model.kinds import NUM_KINDS, SPECIAL, KindAwareEncoder
from nest_model.model.layers import EncoderBlock, PostNormBlock, compute_dtype, initialise, sinusoids
from schemas.errors import NestError
from schemas.tables.vocab import SPECIALS

GRAPH_LAYERS = 3
GRAPH_HEADS = 2
PARTS = 5
"""A set's row in BERT is as wide as five nodes, as in the paper, which joins five parts."""

MASKED_TYPE = NO_TYPE - 1
"""The visit type of a set that is to be guessed; with NO_TYPE it counts from the end of the embedding of types."""

EDGE_TYPES = SPECIAL * (SPECIAL + 1) // 2 + 1
"""One for each unordered pair of kinds of codes, and one for the set's node, or another special, with any."""

_COLUMNS = 8  # the kernels need a head width that is a multiple of 8


def edge_types() -> Tensor:
    """Return the type of the edge between two kinds, i64 [kinds, kinds]; it is the same in both directions."""
    types = torch.full((NUM_KINDS, NUM_KINDS), EDGE_TYPES - 1)
    first, second = torch.triu_indices(SPECIAL, SPECIAL)
    types[first, second] = types[second, first] = torch.arange(EDGE_TYPES - 1)
    return types


def node_width(config: ModelConfig) -> int:
    """Return the width of a node.

    Raises:
        NestError: a set's row cannot be cut into parts with two heads each.
    """
    if config.d_model % (PARTS * GRAPH_HEADS):
        raise NestError(
            f"model config: d_model must be a multiple of {PARTS * GRAPH_HEADS} for gt_behrt, and is {config.d_model}."
        )
    return config.d_model // PARTS


def num_joined_parts(config: ModelConfig) -> int:
    """Return of how many parts a set's row in BERT is joined: node, number and days, and those the config names."""
    return 3 + bool(config.visit_types) + config.day_of_year


@dataclass(frozen=True)
class Graphs:
    """The nodes of a batch: of each set its own, its distinct codes, and each special token of its events."""

    tokens: Tensor  # i64 [nodes], set by set
    kinds: Tensor  # i64 [nodes]
    offsets: Tensor  # i64 [sets + 1], in nodes
    node_of_row: Tensor  # i64 [rows of the batch]

    @classmethod
    def of(cls, batch: PackedBatch, kinds: Tensor) -> Self:
        """Merge the rows of a set with the same code; `kinds` i64 [rows]."""
        rows = torch.arange(len(batch.tokens), device=kinds.device)
        base = len(rows) + int(batch.tokens.max()) + 1
        # [UNK] and [MASK] each stand for a code of their own, so they are numbered by row; [CLS] comes first
        code = torch.where(batch.tokens < len(SPECIALS), rows, len(rows) + batch.tokens)
        keys, node_of_row = torch.unique(batch.set_of_row * base + code, return_inverse=True)
        row_of_node = torch.zeros_like(keys).scatter_(0, node_of_row, rows)
        counts = torch.bincount(keys // base, minlength=batch.sets)
        return cls(batch.tokens[row_of_node], kinds[row_of_node], offsets_of(counts), node_of_row)

    @property
    def set_nodes(self) -> Tensor:
        """The sets' own nodes, i64 [sets]: the first of each graph."""
        return self.offsets[:-1]


@dataclass(frozen=True)
class EdgePlan:
    """Attention within graphs, with edges: an AttentionPlan whose keys and values are those of nodes alone."""

    plan: AttentionPlan
    types: Tensor  # i64 [queries, kinds], of the edge from a node to one of each kind
    kinds: Tensor  # [nodes, kinds], 1 at the node's kind
    edges: Tensor  # [edge types, heads, d_head]

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attend within each graph; see AttentionPlan."""
        heads, d_head, dtype = query.shape[1], query.shape[2], query.dtype
        edges, types = self.edges.to(dtype), self.types[:, None].expand(-1, heads, -1)
        of_edges = torch.einsum("nhd,thd->nht", query, edges).gather(2, types)
        width = math.ceil((d_head + NUM_KINDS) / _COLUMNS) * _COLUMNS
        padding = (0, width - d_head - NUM_KINDS)
        kinds = self.kinds.to(dtype)[:, None].expand(-1, heads, -1)
        # the plan divides scores by the root of the width that it sees
        wide_query = F.pad(torch.cat([query, of_edges], dim=2), padding) * math.sqrt(width / d_head)
        wide_key, wide_value = (F.pad(torch.cat([rows, kinds], dim=2), padding) for rows in (key, value))
        outputs = self.plan.attend(wide_query, wide_key, wide_value)
        shares_of_kinds = outputs[..., d_head : d_head + NUM_KINDS]
        shares = outputs.new_zeros(*query.shape[:2], len(edges)).scatter_add(2, types, shares_of_kinds)
        return outputs[..., :d_head] + torch.einsum("nht,thd->nhd", shares, edges)


class GraphLayer(nn.Module):
    """A block over the nodes of each graph, with a vector for each type of edge."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.block = EncoderBlock(width, GRAPH_HEADS, width)
        self.edges = nn.Embedding(EDGE_TYPES, width)
        nn.init.normal_(self.edges.weight, std=width**-0.5)

    def forward(
        self, nodes: Tensor, plan: AttentionPlan, types: Tensor, kinds: Tensor, queries: Tensor | None = None
    ) -> Tensor:
        """Return the nodes that are queries, [queries, width]; see EdgePlan and EncoderBlock."""
        edges = self.edges.weight.unflatten(1, (GRAPH_HEADS, -1))
        outputs: Tensor = self.block(nodes, EdgePlan(plan, types, kinds, edges), None, queries)
        return outputs


class GtBehrt(KindAwareEncoder):
    """GT-BEHRT with heads for missing nodes and masked types; its tokens and nodes are a fifth as wide as its sets.

    What belongs to types of visit is None in a model that knows none.
    """

    system = "gt_behrt"
    depends_on = frozenset({"days", "visit_types", "days_of_year"})
    unused_in_tasks = ("missing_node.", "visit_type.")
    edge_types: Tensor  # i64 [kinds, kinds]
    # [types + 2, node width]; after the types come [MASK] and a set without a type
    visit_type_embedding: nn.Embedding | None
    visit_type: nn.Linear | None  # of a set's row in BERT, to the types

    def __init__(self, config: ModelConfig) -> None:
        width, d_model, types = node_width(config), config.d_model, len(config.visit_types)
        super().__init__(config, token_width=width)
        self.register_buffer("edge_types", edge_types(), persistent=False)
        self.kind_embedding = nn.Embedding(NUM_KINDS, width)
        graph_layers = nn.ModuleList(GraphLayer(width) for _ in range(GRAPH_LAYERS))
        self.graph_layers = cast("Sequence[GraphLayer]", graph_layers)
        self.node_norm = nn.LayerNorm(width, bias=False)
        self.visit_type_embedding = nn.Embedding(types + 2, width) if types else None
        self.join = nn.Linear(num_joined_parts(config) * width, d_model)
        self.join_norm = nn.LayerNorm(d_model)
        blocks = nn.ModuleList(
            PostNormBlock(d_model, config.heads, config.d_ff) for _ in range(config.layers)
        )
        self.blocks = cast("Sequence[PostNormBlock]", blocks)
        self.missing_node = nn.Linear(d_model, width)
        self.visit_type = nn.Linear(d_model, types) if types else None
        initialise(self, [*(layer.block for layer in self.graph_layers), *self.blocks])
        for embedding in self._embeddings:
            nn.init.normal_(embedding.weight, std=width**-0.5)

    @classmethod
    def num_parameters(cls, config: ModelConfig) -> int:
        """Return the number of parameters of a model of this shape, without building it."""
        g, d, d_ff = node_width(config), config.d_model, config.d_ff
        graph = (
            NUM_KINDS * g + GRAPH_LAYERS * (4 * g * g + 3 * g * g + 2 * g) + GRAPH_LAYERS * EDGE_TYPES * g + g
        )
        join = num_joined_parts(config) * g * d + d + 2 * d
        block = 4 * d * d + 2 * d * d_ff + 9 * d + d_ff
        types = len(config.visit_types)
        of_types = (types + 2) * g + d * types + types if types else 0
        return config.vocab_size * g + graph + join + config.layers * block + d * g + g + of_types

    def token_vectors(self, tokens: Tensor) -> Tensor:
        """Return embedded tokens with zeros after them: i64 [any] → [any, d_model]."""
        return self._widen(self.embedding(tokens))

    def read(self, batch: PackedBatch, rows: Tensor) -> ReadRows:
        """Return for [CLS] rows their set's row in BERT, and for others their node with zeros after it."""
        kinds = self.kind_of_token[batch.tokens]
        is_cls = torch.zeros(len(batch.tokens), dtype=torch.bool, device=rows.device)
        is_cls = is_cls.index_fill_(0, batch.cls_rows, True)
        if self.config.shortcuts.pruned_last_layer and is_cls[rows].all():
            sets = self.sets(batch, self.set_nodes(batch, kinds))
            places, place = torch.unique(batch.set_of_row.index_select(0, rows), return_inverse=True)
            return ReadRows(sets.index_select(0, places), place)
        graphs, nodes = self.nodes(batch, kinds)
        sets = self.sets(batch, nodes.index_select(0, graphs.set_nodes))
        hidden_states = torch.cat([sets, self._widen(nodes)])
        place = torch.where(is_cls, batch.set_of_row, batch.sets + graphs.node_of_row).index_select(0, rows)
        places, place = torch.unique(place, return_inverse=True)
        return ReadRows(hidden_states.index_select(0, places), place)

    def nodes(self, batch: PackedBatch, kinds: Tensor) -> tuple[Graphs, Tensor]:
        """Return the graphs and their nodes after the graph layers, [nodes, node width].

        Args:
            kinds: i64 [rows]; of a masked code its own, for a node keeps its kind.
        """
        graphs = Graphs.of(batch, kinds)
        return graphs, self._of_graphs(graphs)

    def set_nodes(self, batch: PackedBatch, kinds: Tensor) -> Tensor:
        """Return each set's own node after the graph layers, [sets, node width]; see `nodes`.

        The last layer computes no other.
        """
        graphs = Graphs.of(batch, kinds)
        return self._of_graphs(graphs, graphs.set_nodes)

    def _of_graphs(self, graphs: Graphs, read: Tensor | None = None) -> Tensor:
        """Return the nodes to be read, i64 [any] and rising, after the graph layers; None: all."""
        nodes: Tensor = self.embedding(graphs.tokens) + self.kind_embedding(graphs.kinds)
        plan = plan_attention(graphs.offsets, dtype=compute_dtype(nodes))
        types, is_kind = self.edge_types[graphs.kinds], F.one_hot(graphs.kinds, NUM_KINDS)
        *layers, last = self.graph_layers
        for layer in layers:
            nodes = layer(nodes, plan, types, is_kind)
        if read is not None:
            is_read = torch.zeros_like(graphs.kinds, dtype=torch.bool).index_fill_(0, read, True)
            plan = plan_attention(graphs.offsets, is_query=is_read, dtype=compute_dtype(nodes))
            types = types.index_select(0, read)
        outputs: Tensor = self.node_norm(last(nodes, plan, types, is_kind, read))
        return outputs

    def sets(self, batch: PackedBatch, of_sets: Tensor) -> Tensor:
        """Return the row of each set in BERT, [sets, d_model], from the sets' own nodes, [sets, node width]."""
        parts, positions = [of_sets], [numbers_within(batch.subject_offsets), batch.days]
        if self.visit_type_embedding is not None:
            parts.append(
                self.visit_type_embedding(batch.visit_types % self.visit_type_embedding.num_embeddings)
            )
        if self.config.day_of_year:
            positions.append(batch.days_of_year)
        places = (sinusoids(position, of_sets.shape[1], of_sets.dtype) for position in positions)
        # the cosine of a pair comes first, as in the models saved so far
        parts += [place.unflatten(1, (-1, 2)).flip(2).flatten(1) for place in places]
        rows: Tensor = self.join_norm(self.join(torch.cat(parts, dim=1)))
        # few rows, whose heads may be of a width that the other kernels do not take
        plan = plan_attention(batch.subject_offsets, dtype=compute_dtype(rows), backend="sdpa")
        for block in self.blocks:
            rows = block(rows, plan)
        return rows

    @property
    def _embeddings(self) -> list[nn.Embedding]:
        of_types = [] if self.visit_type_embedding is None else [self.visit_type_embedding]
        return [self.embedding, self.kind_embedding, *of_types]

    def _widen(self, vectors: Tensor) -> Tensor:
        return F.pad(vectors, (0, self.config.d_model - vectors.shape[1]))

    def parts(self) -> dict[str, list[nn.Module]]:
        """Return the embeddings of tokens, kinds and types of visit, the graph layers, and BERT with its input."""
        return {
            "embedding": [*self._embeddings],
            "swe": [*self.graph_layers, self.node_norm],
            "cse": [self.join, self.join_norm, *self.blocks],
        }

    def units(self) -> Sequence[nn.Module]:
        """Return the layers of graphs and the blocks of BERT."""
        return [*self.graph_layers, *self.blocks]


ENCODER = GtBehrt
