"""BERT, the control: NEST's rows in one flat piece per patient, after Devlin et al. 2019 with NEST's blocks.

Rows of all sets attend to each other, with rotary positions by row number. It has no set head and reads no times.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.model.attention import plan_attention
from nest_model.model.encoder import Encoder, ReadRows
from nest_model.model.layers import EncoderBlock, compute_dtype, initialise, rotation


class Bert(Encoder):
    """A flat encoder with its tied token head; two blocks for each of the config's layers, as many as NEST has."""

    system = "bert"
    objective = "mlm"
    depends_on = frozenset({"order"})

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        blocks = nn.ModuleList(
            EncoderBlock(config.d_model, config.heads, config.d_ff) for _ in range(2 * config.layers)
        )
        self.blocks = cast("Sequence[EncoderBlock]", blocks)
        self.norm = nn.LayerNorm(config.d_model, bias=False)
        initialise(self, self.blocks)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)

    @classmethod
    def num_parameters(cls, config: ModelConfig) -> int:
        """Return the number of parameters of a model of this shape, without building it."""
        d = config.d_model
        return config.vocab_size * d + 2 * config.layers * (4 * d * d + 3 * d * config.d_ff + 2 * d) + d

    def read(self, batch: PackedBatch, rows: Tensor) -> ReadRows:
        """Return the given rows, i64 [any], after the final norm; the last block computes these alone."""
        is_read = torch.zeros(len(batch.tokens), dtype=torch.bool, device=rows.device).index_fill_(
            0, rows, True
        )
        hidden_states: Tensor = self.embedding(batch.tokens)
        offsets, dtype = batch.set_offsets[batch.subject_offsets], compute_dtype(hidden_states)
        row_numbers = torch.arange(len(is_read), device=rows.device) - offsets[:-1].repeat_interleave(
            offsets.diff()
        )
        positions = rotation(
            row_numbers, self.config.d_model // self.config.heads, self.embedding.weight.dtype
        )
        plan = plan_attention(offsets, dtype=dtype)
        for block in self.blocks[:-1]:
            hidden_states = block(hidden_states, plan, positions)
        last_plan = plan_attention(offsets, is_query=is_read, dtype=dtype)
        hidden_states = self.blocks[-1](hidden_states, last_plan, positions, is_read.nonzero().squeeze(1))
        return ReadRows(self.norm(hidden_states), (is_read.cumsum(0) - 1).index_select(0, rows))

    def parts(self) -> dict[str, list[nn.Module]]:
        """Return the embedding of tokens."""
        return {"embedding": [self.embedding]}

    def units(self) -> Sequence[EncoderBlock]:
        """Return the blocks."""
        return self.blocks


ENCODER = Bert
