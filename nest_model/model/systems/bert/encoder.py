"""BERT, the control: NEST's rows in one flat piece per patient, after Devlin et al. 2019 with NEST's blocks.

Rows of all sets attend to each other, with rotary positions by row number. It has no set head and reads no times.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import cast

from torch import Tensor, nn

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.model.encoder import Encoder, ReadRows
from nest_model.model.flat import numbers_within, run_blocks
from nest_model.model.layers import EncoderBlock, initialise, rotation


class Bert(Encoder):
    """A flat encoder with its tied token head; two blocks for each of the config's layers, as many as NEST has."""

    system = "bert"
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
        offsets = batch.set_offsets[batch.subject_offsets]
        d_head, dtype = self.config.d_model // self.config.heads, self.embedding.weight.dtype
        positions = rotation(numbers_within(offsets), d_head, dtype)
        blocks = [partial(block, rotation=positions) for block in self.blocks]
        read = run_blocks(blocks, self.embedding(batch.tokens), offsets, rows)
        return replace(read, hidden_states=self.norm(read.hidden_states))

    def parts(self) -> dict[str, list[nn.Module]]:
        """Return the embedding of tokens."""
        return {"embedding": [self.embedding]}

    def units(self) -> Sequence[EncoderBlock]:
        """Return the blocks."""
        return self.blocks


ENCODER = Bert
