"""The first objective of GT-BEHRT: guess masked nodes from their graph (node attribute masking, NAM)."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Generator, Tensor

from nest_model.data.packed import PackedBatch
from nest_model.model.systems.gt_behrt.encoder import GtBehrt
from nest_model.training.nodes import FIRST_TOKEN, NodeObjective, distinct_codes, loss_of_nodes
from nest_model.training.objective import Objective
from schemas.tables.vocab import MASK


@dataclass(frozen=True)
class MaskedNodes:
    """A batch of nodes, some of which are masked."""

    batch: PackedBatch
    codes: Tensor  # i64 [rows], the tokens before any was masked, which tell the kinds of nodes
    masked_rows: Tensor  # i64 [masked nodes], rising

    @property
    def hidden_tokens(self) -> Tensor:
        """The tokens of the masked nodes, i64 [masked nodes]."""
        return self.codes.index_select(0, self.masked_rows)

    def slice_subjects(self, first: int, end: int) -> Self:
        """Return the patients `first` … `end - 1`."""
        sets = self.batch.subject_offsets[[first, end]]
        first_row, end_row = self.batch.set_offsets[sets].tolist()
        is_within = (self.masked_rows >= first_row) & (self.masked_rows < end_row)
        return type(self)(
            self.batch.slice_subjects(first, end),
            self.codes[first_row:end_row],
            self.masked_rows[is_within] - first_row,
        )

    def to(self, device: torch.device | str) -> Self:
        """Return the batch with every tensor on `device`."""
        return type(self)(self.batch.to(device), self.codes.to(device), self.masked_rows.to(device))


class MaskedNodeGuesses(NodeObjective):
    """NAM: a share of the codes are [MASK], each still of its kind. No node is missing."""

    name = "nam"
    knows_kind = True
    # types of visit and BERT, for which it is no task
    unread_weights = ("visit_type", "join.", "join_norm.", "blocks.", "missing_node.")

    def corrupt(self, batch: PackedBatch, generator: Generator) -> MaskedNodes:
        """Keep each code of a set once, and mask the share of them that the config has for tokens."""
        nodes = distinct_codes(batch)
        dice = torch.rand(len(nodes.tokens), generator=generator)
        is_masked = (nodes.tokens >= FIRST_TOKEN) & (dice < self.config.token_mask_share)
        masked_batch = replace(nodes, tokens=nodes.tokens.masked_fill(is_masked, MASK))
        return MaskedNodes(masked_batch, nodes.tokens, is_masked.nonzero().squeeze(1))

    def hidden_values(self, masked_nodes: MaskedNodes) -> dict[str, Tensor]:
        """Return the codes of the masked nodes."""
        return {self.name: masked_nodes.hidden_tokens}

    def loss_sums(self, encoder: GtBehrt, masked_nodes: MaskedNodes) -> dict[str, Tensor]:
        """Guess the masked nodes by what they are after the graph layers."""
        graphs, nodes = encoder.nodes(masked_nodes.batch, encoder.kind_of_token[masked_nodes.codes])
        guesses = nodes.index_select(0, graphs.node_of_row[masked_nodes.masked_rows])
        return {self.name: loss_of_nodes(encoder, guesses, masked_nodes.hidden_tokens)}


OBJECTIVE: type[Objective] = MaskedNodeGuesses
