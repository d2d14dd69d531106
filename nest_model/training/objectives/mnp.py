"""The second stage of GT-BEHRT: guess the node that a set lacks, and the type of visit that is masked.

Missing node prediction (MNP) and visit type prediction (VTP) have a loss each. A model that knows no types of visit has
MNP alone.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from nest_model.data.packed import PackedBatch, visit_types
from nest_model.model.systems.gt_behrt.encoder import MASKED_TYPE, GtBehrt
from nest_model.training.guesses.popularity import HALF
from nest_model.training.nodes import (
    FIRST_TOKEN,
    NodeObjective,
    distinct_codes,
    keep_rows,
    loss_of_nodes,
)
from nest_model.training.objective import Objective
from nest_model.training.pretraining_data import PretrainingExamples

TYPE_MASK_SHARE = 0.5  # of the sets, as in the paper
TYPES = "vtp"  # the loss of the types of visit


@dataclass(frozen=True)
class MissingNodes:
    """A batch of nodes, some of whose sets lack one, and some of whose sets have their type masked."""

    batch: PackedBatch
    lacking_sets: Tensor  # i64 [missing nodes], rising: at most one in a set
    hidden_tokens: Tensor  # i64 [missing nodes], their tokens
    masked_sets: Tensor  # i64 [guessed types], rising: the masked sets of a type that the model knows
    hidden_types: Tensor  # i64 [guessed types]

    def slice_subjects(self, first: int, end: int) -> Self:
        """Return the patients `first` … `end - 1`."""
        first_set, end_set = self.batch.subject_offsets[[first, end]].tolist()
        is_lacking, is_masked = (
            (sets >= first_set) & (sets < end_set) for sets in (self.lacking_sets, self.masked_sets)
        )
        return type(self)(
            self.batch.slice_subjects(first, end),
            self.lacking_sets[is_lacking] - first_set,
            self.hidden_tokens[is_lacking],
            self.masked_sets[is_masked] - first_set,
            self.hidden_types[is_masked],
        )

    def to(self, device: torch.device | str) -> Self:
        """Return the batch with every tensor on `device`."""
        return type(self)(**{name: value.to(device) for name, value in vars(self).items()})


class MissingNodeGuesses(NodeObjective):
    """MNP: each set of two nodes or more lacks one of its codes. No node is masked. VTP: types of visit are masked."""

    name = "mnp"
    knows_kind = False

    def corrupt(self, batch: PackedBatch, generator: Generator) -> MissingNodes:
        """Keep each code of a set once, and remove one, at random, where another node remains; mask types."""
        nodes = distinct_codes(batch)
        set_of_node, num_nodes = nodes.set_of_row, nodes.set_offsets.diff() - 1  # without [CLS]
        is_removable = (nodes.tokens >= FIRST_TOKEN) & (num_nodes[set_of_node] > 1)
        numbers = torch.rand(len(nodes.tokens), generator=generator, dtype=torch.float64)
        numbers = numbers.where(is_removable, -1.0)
        highest = torch.zeros(nodes.sets, dtype=torch.float64).scatter_reduce_(
            0, set_of_node, numbers, "amax"
        )
        is_missing = numbers == highest[set_of_node]
        is_masked = torch.zeros(nodes.sets, dtype=torch.bool)
        if self.config.visit_types:
            is_masked = torch.rand(nodes.sets, generator=generator) < TYPE_MASK_SHARE
        masked_sets = (is_masked & (batch.visit_types >= 0)).nonzero().squeeze(1)
        seen_types = batch.visit_types.masked_fill(is_masked, MASKED_TYPE)
        return MissingNodes(
            replace(keep_rows(nodes, ~is_missing), visit_types=seen_types),
            set_of_node[is_missing],
            nodes.tokens[is_missing],
            masked_sets,
            batch.visit_types[masked_sets],
        )

    def hidden_values(self, missing_nodes: MissingNodes) -> dict[str, Tensor]:
        """Return the codes of the missing nodes, and the masked types, if there are any to know."""
        types = {TYPES: missing_nodes.hidden_types} if self.config.visit_types else {}
        return {self.name: missing_nodes.hidden_tokens} | types

    def loss_sums(self, encoder: GtBehrt, missing_nodes: MissingNodes) -> dict[str, Tensor]:
        """Guess by the rows in BERT of the sets that lack a node, and of those whose type is masked."""
        batch = missing_nodes.batch
        sets = encoder.sets(batch, encoder.set_nodes(batch, encoder.kind_of_token[batch.tokens]))
        vectors = encoder.missing_node(sets.index_select(0, missing_nodes.lacking_sets))
        sums = {self.name: loss_of_nodes(encoder, vectors, missing_nodes.hidden_tokens)}
        if encoder.visit_type is not None:
            logits = encoder.visit_type(sets.index_select(0, missing_nodes.masked_sets))
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            sums[TYPES] = F.cross_entropy(logits, missing_nodes.hidden_types, reduction="sum")
        return sums

    def start_at_shares(self, encoder: GtBehrt, examples: PretrainingExamples) -> None:
        """Let the head of types start at the constant guess; the tied token head has no bias."""
        if encoder.visit_type is not None:
            with torch.no_grad():
                encoder.visit_type.bias.copy_(-torch.from_numpy(self._nats_of_types(examples)))

    def constant_nats(self, examples: PretrainingExamples) -> dict[str, np.ndarray]:
        """Return for each loss that of a constant guess; see NodeObjective."""
        types = {TYPES: self._nats_of_types(examples)} if self.config.visit_types else {}
        return super().constant_nats(examples) | types

    def _nats_of_types(self, examples: PretrainingExamples) -> np.ndarray:
        """Return the loss of guessing each type by its share of the training patients' sets, f64 [types]."""
        types = visit_types(examples.seqsets, examples.train, self.config)
        counts = np.bincount(types[types >= 0], minlength=len(self.config.visit_types))
        nats: np.ndarray = -np.log((counts + HALF) / (counts.sum() + HALF * len(counts)))
        return nats


OBJECTIVE: type[Objective] = MissingNodeGuesses
