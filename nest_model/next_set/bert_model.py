"""BERT4Rec (Sun et al., CIKM 2019) of NEST's own blocks, on packed rows: each user's rows attend to one another."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nest_model.model.attention import plan_attention
from nest_model.model.cross_entropy import Targets, cross_entropy_sum
from nest_model.model.layers import EncoderBlock, compute_dtype, initialise, rotation
from nest_model.next_set.bert_masking import MaskedRows
from nest_model.next_set.bert_options import BertOptions
from nest_model.next_set.bert_rows import FIRST, BertRows
from schemas.errors import NestError


@dataclass(frozen=True)
class BertBatch:
    """Rows as tensors on a device."""

    tokens: Tensor  # i64 [rows]
    positions: Tensor  # i64 [rows]
    offsets: Tensor  # i64 [users + 1]

    @classmethod
    def of(cls, rows: BertRows, device: torch.device) -> Self:
        """Copy rows to a device."""
        return cls(*(torch.from_numpy(array).to(device) for array in vars(rows).values()))


@dataclass(frozen=True)
class Guesses:
    """The products a batch guesses; a row may have several."""

    rows: Tensor  # i64 [guessing rows], ascending
    targets: Targets  # their rows count the guessing rows

    @classmethod
    def of(cls, masked_rows: MaskedRows, device: torch.device) -> Self:
        """Copy the targets of masked rows to a device; each weighs 1."""
        rows, place = np.unique(masked_rows.target_rows, return_inverse=True)
        weights = np.ones(len(place))
        arrays = (rows, place, masked_rows.target_tokens - FIRST, weights)
        guessing, *targets = (torch.from_numpy(array).to(device) for array in arrays)
        return cls(guessing, Targets(*targets))


class BertModel(nn.Module):
    """The encoder and its head: a logit for each product token is (output row · product's row) + bias.

    Linear weights and the embedding start as NestModel's; the bias starts at the log of the products' shares of the
    lines, so that the untrained model lists what everybody buys.
    """

    def __init__(self, options: BertOptions, shares: Tensor) -> None:
        """Draw the weights from torch's global generator.

        Args:
            shares: f32 [product tokens], all above 0.
        """
        super().__init__()
        if options.d_model % (2 * options.heads):
            raise NestError(
                f"bert: d_model {options.d_model} does not divide into {options.heads} heads of an even width."
            )
        width = options.d_model
        self.d_head = width // options.heads
        self.embedding = nn.Embedding(FIRST + len(shares), width)
        blocks = nn.ModuleList(
            EncoderBlock(width, options.heads, options.d_ff) for _ in range(2 * options.layers)
        )
        self.blocks = cast("Sequence[EncoderBlock]", blocks)
        self.norm = nn.LayerNorm(width, bias=False)
        self.dropout = nn.Dropout(options.dropout)
        self.bias = nn.Parameter(shares.log())
        initialise(self, self.blocks)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.out = None if options.tied else nn.Parameter(self.embedding.weight[FIRST:].detach().clone())

    @property
    def output_table(self) -> Tensor:
        """The row of each product that output rows are compared with, [product tokens, d_model]."""
        return self.embedding.weight[FIRST:] if self.out is None else self.out

    def forward(self, batch: BertBatch, guesses: Guesses) -> Tensor:
        """Return the sum of the targets' cross-entropies, in nats."""
        states = self.states(batch, guesses.rows)
        return cross_entropy_sum(states, self.output_table, self.bias, guesses.targets, in_chunks=True)

    def states(self, batch: BertBatch, rows: Tensor) -> Tensor:
        """Return the output at these rows, i64 [any], ascending and distinct: [any, d_model]."""
        dtype = compute_dtype(self.embedding.weight)
        factors = rotation(batch.positions, self.d_head, self.embedding.weight.dtype)
        plan = plan_attention(batch.offsets, dtype=dtype)
        is_read = torch.zeros(len(batch.tokens), dtype=torch.bool, device=rows.device).index_fill_(
            0, rows, True
        )
        last_plan = plan_attention(batch.offsets, is_query=is_read, dtype=dtype)
        states = self.dropout(self.embedding(batch.tokens))
        for block in self.blocks[:-1]:
            states = block(states, plan, factors)
        states = self.blocks[-1](states, last_plan, factors, rows)
        return cast("Tensor", self.dropout(self.norm(states)))

    def logits(self, states: Tensor) -> Tensor:
        """Return a logit for each product token: [any, d_model] → f32 [any, product tokens]."""
        return F.linear(states, self.output_table, self.bias.to(states.dtype)).float()
