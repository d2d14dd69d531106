"""CORE-BEHRT: a flat encoder that is told the set and the time of each row, after Odgaard et al. 2024.

Each set is [CLS] events [SEP]. Rows of all sets attend to each other, with rotary positions by row number; a row's
input is its token, the number of its set, and Time2Vec of its set's days and of its own hours (arXiv 2404.15201).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.model.encoder import Encoder, ReadRows
from nest_model.model.flat import FlatRows, numbers_within, run_blocks
from nest_model.model.layers import EncoderBlock, Time2Vec, initialise, rotation
from schemas.tables.vocab import SEP

HOURS_PER_DAY = 24


class CoreBehrt(Encoder):
    """CORE-BEHRT with its tied token head; two blocks for each of the config's layers, as many as NEST has."""

    system = "core_behrt"
    depends_on = frozenset({"order", "hours", "days"})

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.segment = nn.Embedding(config.max_sets + 1, config.d_model)  # sets are numbered from 1
        self.time2vec = nn.ModuleDict(
            {unit: Time2Vec(config.d_model, config.time2vec_scale) for unit in ("hours", "days")}
        )
        blocks = nn.ModuleList(
            EncoderBlock(config.d_model, config.heads, config.d_ff) for _ in range(2 * config.layers)
        )
        self.blocks = cast("Sequence[EncoderBlock]", blocks)
        self.norm = nn.LayerNorm(config.d_model, bias=False)
        initialise(self, self.blocks)
        for table in (self.embedding, self.segment):
            nn.init.normal_(table.weight, std=config.d_model**-0.5)

    @classmethod
    def num_parameters(cls, config: ModelConfig) -> int:
        """Return the number of parameters of a model of this shape, without building it."""
        d = config.d_model
        vectors = config.vocab_size + config.max_sets + 1 + 2 * 2 + 1  # with two Time2Vec and the final norm
        return vectors * d + 2 * config.layers * (4 * d * d + 3 * d * config.d_ff + 2 * d)

    def read(self, batch: PackedBatch, rows: Tensor) -> ReadRows:
        """Return the given rows, i64 [any], after the final norm; a set's row is its [CLS]."""
        flat = FlatRows.of(batch, after=1)
        d_head, dtype = self.config.d_model // self.config.heads, self.embedding.weight.dtype
        positions = rotation(numbers_within(flat.offsets), d_head, dtype)
        blocks = [partial(block, rotation=positions) for block in self.blocks]
        read = run_blocks(blocks, self.embed(batch, flat), flat.offsets, flat.place.index_select(0, rows))
        return replace(read, hidden_states=self.norm(read.hidden_states))

    def embed(self, batch: PackedBatch, flat: FlatRows) -> Tensor:
        """Return the input of the first block, [flat rows, d_model]; a [SEP] has the time of its set's start."""
        set_of_row = flat.set_of_row
        tokens = torch.full_like(set_of_row, SEP).index_copy_(0, flat.place, batch.tokens)
        hours = batch.days.index_select(0, set_of_row) * HOURS_PER_DAY
        hours = hours.index_add_(0, flat.place, batch.hours.double())
        of_set = self.segment(numbers_within(batch.subject_offsets) + 1) + self.time2vec["days"](batch.days)
        rows: Tensor = self.embedding(tokens) + self.time2vec["hours"](hours)
        rows = rows + of_set.index_select(0, set_of_row)
        return rows

    def parts(self) -> dict[str, list[nn.Module]]:
        """Return the embeddings of tokens, set numbers and times."""
        return {"embedding": [self.embedding, self.segment, self.time2vec]}

    def units(self) -> Sequence[EncoderBlock]:
        """Return the blocks."""
        return self.blocks


ENCODER = CoreBehrt
