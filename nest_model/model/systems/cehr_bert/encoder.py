"""CEHR-BERT: a flat encoder with time tokens between the sets and the time of each set in its rows' input.

After Pang et al. 2021, arXiv 2111.08585, without its second objective, the visit's type. A patient's rows are [CLS],
then [VS] events [VE] for each set, and before every set but the first a token for the time since the set before. A
row's input joins its token with the set's weeks and number; rows have no order.
"""

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.model.encoder import Encoder, ReadRows
from nest_model.model.flat import FlatRows, numbers_within, run_blocks
from nest_model.model.gather import take
from nest_model.model.layers import Angles, PostNormBlock, initialise, sinusoids
from schemas.tables.vocab import CLS

OWN_TOKENS = ("VS", "VE", *(f"W{week}" for week in range(4)), *(f"M{month}" for month in range(1, 12)), "LT")
VS, VE, FIRST_WEEK, LONG_TERM = map(OWN_TOKENS.index, ("VS", "VE", "W0", "LT"))
FIRST_MONTH = OWN_TOKENS.index("M1")
DAYS_PER_WEEK, DAYS_PER_MONTH, DAYS_OF_WEEKS, DAYS_OF_MONTHS = 7, 30, 28, 360

TIME_WIDTH = 16
"""The width of each of the three vectors of a set's time and number."""

SEGMENTS = 3
"""Of [CLS] and time tokens, of the first, third … set, and of the second, fourth … set."""


class SineTimes(nn.Module):
    """A learned embedding of times, the sines of `Angles`: 2 · TIME_WIDTH parameters (Pang et al. 2021)."""

    def __init__(self, phase: float) -> None:
        super().__init__()
        self.angles = Angles(TIME_WIDTH, phase)

    def forward(self, times: Tensor) -> Tensor:
        """Return the embedding of times: [any] → [any, TIME_WIDTH]; angles are computed in float64."""
        sines: Tensor = self.angles(times).sin()
        return sines.to(self.angles.phase.dtype)


class CehrBert(Encoder):
    """CEHR-BERT with its tied token head; two blocks for each of the config's layers."""

    system = "cehr_bert"
    depends_on = frozenset({"days", "gaps"})

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        d = config.d_model
        self.own_embedding = nn.Embedding(len(OWN_TOKENS), d)
        # of the weeks both, as age is not read: the second starts as the first one's cosine
        self.times = nn.ModuleList(SineTimes(phase) for phase in (0.0, math.pi / 2))
        self.join = nn.Linear(d + 3 * TIME_WIDTH, d)
        self.segment = nn.Embedding(SEGMENTS, d)
        blocks = nn.ModuleList(PostNormBlock(d, config.heads, config.d_ff) for _ in range(2 * config.layers))
        self.blocks = cast("Sequence[PostNormBlock]", blocks)
        initialise(self, self.blocks)
        for table in (self.embedding, self.own_embedding, self.segment):
            nn.init.normal_(table.weight, std=d**-0.5)
        with torch.no_grad():
            self.join.weight[:, :d] *= d**0.5  # tokens start that much smaller than the sines beside them

    @classmethod
    def num_parameters(cls, config: ModelConfig) -> int:
        """Return the number of parameters of a model of this shape, without building it."""
        d, d_ff = config.d_model, config.d_ff
        tables = (config.vocab_size + len(OWN_TOKENS) + SEGMENTS) * d
        times, join = 2 * 2 * TIME_WIDTH, (d + 3 * TIME_WIDTH) * d + d
        return tables + times + join + 2 * config.layers * (4 * d * d + 2 * d * d_ff + 9 * d + d_ff)

    def read(self, batch: PackedBatch, rows: Tensor) -> ReadRows:
        """Return the given rows, i64 [any], after the last block; a set's row is its [VE]."""
        flat = flat_rows(batch)
        place = flat.place.index_copy(0, batch.cls_rows, flat.set_offsets[1:] - 1)
        return self._run(batch, flat, place.index_select(0, rows))

    def patients(self, batch: PackedBatch) -> Tensor:
        """Return the vectors that describe each patient; under the readout `cls` the row [CLS], see Encoder."""
        if self.config.readout != "cls":
            return super().patients(batch)
        flat = flat_rows(batch)
        read = self._run(batch, flat, flat.offsets[:-1])
        return read.hidden_states.index_select(0, read.place)[:, None]

    def _run(self, batch: PackedBatch, flat: FlatRows, rows: Tensor) -> ReadRows:
        return run_blocks(self.blocks, self.embed(batch, flat), flat.offsets, rows)

    def embed(self, batch: PackedBatch, flat: FlatRows) -> Tensor:
        """Return the input of the first block, [flat rows, d_model]."""
        set_of_row, number = flat.set_of_row, numbers_within(batch.subject_offsets) + 1
        weeks = batch.days / DAYS_PER_WEEK
        place = sinusoids(number, TIME_WIDTH, self.join.weight.dtype)
        of_set = torch.cat([*(times(weeks) for times in self.times), place], dim=1)
        parts = torch.cat([self._token_vectors(batch, flat), of_set.index_select(0, set_of_row)], dim=1)
        segment = (2 - number % 2).index_select(0, set_of_row).index_fill_(0, flat.set_offsets[:-1], 0)
        rows: Tensor = F.gelu(self.join(parts)) + self.segment(segment)
        return rows

    def _token_vectors(self, batch: PackedBatch, flat: FlatRows) -> Tensor:
        """Return each row's token vector, [flat rows, d_model]: of the vocabulary or of OWN_TOKENS."""
        of_vocabulary, own = flat_tokens(batch, flat)
        vocabulary_rows, own_rows = ((tokens >= 0).nonzero().squeeze(1) for tokens in (of_vocabulary, own))
        vectors = [
            self.embedding(of_vocabulary.index_select(0, vocabulary_rows)),
            self.own_embedding(own.index_select(0, own_rows)),
        ]
        return take(torch.cat(vectors), torch.cat([vocabulary_rows, own_rows]).argsort())

    def parts(self) -> dict[str, list[nn.Module]]:
        """Return what makes a row's input: tokens, times, their joint layer and segments."""
        return {"embedding": [self.embedding, self.own_embedding, self.times, self.join, self.segment]}

    def units(self) -> Sequence[PostNormBlock]:
        """Return the blocks."""
        return self.blocks


def flat_rows(batch: PackedBatch) -> FlatRows:
    """Return the rows with one of its own at each set's start, [CLS] or a time token, and [VE] at its end.

    [VS] is where the batch has the set's [CLS].
    """
    return FlatRows.of(batch, before=1, after=1)


def flat_tokens(batch: PackedBatch, flat: FlatRows) -> tuple[Tensor, Tensor]:
    """Return each row's token of the vocabulary and its place in OWN_TOKENS, i64 [flat rows]; -1: the other one."""
    first, fronts = flat.set_offsets[:-1], flat.offsets[:-1]
    own = torch.full_like(flat.set_of_row, -1)
    own = own.index_copy_(0, first, time_tokens(batch.gaps)).index_fill_(0, fronts, -1)
    own = own.index_fill_(0, first + 1, VS).index_fill_(0, flat.set_offsets[1:] - 1, VE)
    of_vocabulary = torch.full_like(own, -1).index_copy_(0, flat.place, batch.tokens)
    return of_vocabulary.index_fill_(0, fronts, CLS).masked_fill_(own >= 0, -1), own


def time_tokens(gaps: Tensor) -> Tensor:
    """Return the time token of days between a set's end and the next one's start, places in OWN_TOKENS.

    Below 28 days the week, below 360 the month of 30 days, else LT (Pang et al. 2021). Overlapping sets have W0.
    28 and 29 days would be month 0, which does not exist, and have M1.

    Args:
        gaps: f64 [sets].
    """
    weeks = (gaps / DAYS_PER_WEEK).floor().long().clamp(min=0)
    months = (gaps / DAYS_PER_MONTH).floor().long().clamp(min=1)
    tokens = torch.where(gaps < DAYS_OF_WEEKS, FIRST_WEEK + weeks, FIRST_MONTH - 1 + months)
    return tokens.masked_fill(gaps >= DAYS_OF_MONTHS, LONG_TERM)


ENCODER = CehrBert
