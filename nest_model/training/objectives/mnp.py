"""The second objective of GT-BEHRT: guess the node that a set lacks (missing node prediction, MNP)."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Generator, Tensor

from nest_model.data.packed import PackedBatch
from nest_model.model.systems.gt_behrt.encoder import GtBehrt
from nest_model.training.nodes import FIRST_TOKEN, NodeObjective, distinct_codes, keep_rows
from nest_model.training.objective import Objective


@dataclass(frozen=True)
class MissingNodes:
    """A batch of nodes, some of whose sets lack one."""

    batch: PackedBatch
    lacking_sets: Tensor  # i64 [missing nodes], rising: at most one in a set
    hidden_tokens: Tensor  # i64 [missing nodes], their tokens

    def slice_subjects(self, first: int, end: int) -> Self:
        """Return the patients `first` … `end - 1`."""
        first_set, end_set = self.batch.subject_offsets[[first, end]].tolist()
        is_within = (self.lacking_sets >= first_set) & (self.lacking_sets < end_set)
        return type(self)(
            self.batch.slice_subjects(first, end),
            self.lacking_sets[is_within] - first_set,
            self.hidden_tokens[is_within],
        )

    def to(self, device: torch.device | str) -> Self:
        """Return the batch with every tensor on `device`."""
        return type(self)(self.batch.to(device), self.lacking_sets.to(device), self.hidden_tokens.to(device))


class MissingNodeGuesses(NodeObjective):
    """MNP: each set of two nodes or more lacks one of its codes. No node is masked."""

    name = "mnp"
    knows_kind = False

    def corrupt(self, batch: PackedBatch, generator: Generator) -> MissingNodes:
        """Keep each code of a set once, and remove one, at random, where another node remains."""
        nodes = distinct_codes(batch)
        set_of_node, num_nodes = nodes.set_of_row, nodes.set_offsets.diff() - 1  # without [CLS]
        is_removable = (nodes.tokens >= FIRST_TOKEN) & (num_nodes[set_of_node] > 1)
        numbers = torch.rand(len(nodes.tokens), generator=generator, dtype=torch.float64)
        numbers = numbers.where(is_removable, -1.0)
        highest = torch.zeros(nodes.sets, dtype=torch.float64).scatter_reduce_(
            0, set_of_node, numbers, "amax"
        )
        is_missing = numbers == highest[set_of_node]
        return MissingNodes(keep_rows(nodes, ~is_missing), set_of_node[is_missing], nodes.tokens[is_missing])

    def guesses(self, encoder: GtBehrt, missing_nodes: MissingNodes) -> Tensor:
        """Return what the head makes of the rows in BERT of the sets that lack a node."""
        batch = missing_nodes.batch
        sets = encoder.sets(batch, encoder.set_nodes(batch, encoder.kind_of_token[batch.tokens]))
        vectors: Tensor = encoder.missing_node(sets.index_select(0, missing_nodes.lacking_sets))
        return vectors


OBJECTIVE: type[Objective] = MissingNodeGuesses
