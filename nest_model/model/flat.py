"""What flat encoders share: BERT itself, rows of their own among a batch's, a pass whose last block computes little."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Protocol, Self, cast

import torch
from torch import Tensor, nn

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.model.attention import AttentionPlan, plan_attention
from nest_model.model.encoder import Encoder, ReadRows
from nest_model.model.layers import Attention, EncoderBlock, compute_dtype, initialise, rotation


class FlatBlock(Protocol):
    """A block without positions, or one that already has them."""

    def __call__(self, rows: Tensor, plan: AttentionPlan, *, query_rows: Tensor | None = None) -> Tensor:
        """Return the output at the query rows; see EncoderBlock."""
        ...


@dataclass(frozen=True)
class FlatRows:
    """Where a batch's rows are once a system has rows of its own before and after those of each set."""

    place: Tensor  # i64 [rows of the batch], the flat row of each
    set_offsets: Tensor  # i64 [sets + 1], in flat rows; a set begins and ends with the system's own
    offsets: Tensor  # i64 [subjects + 1], in flat rows

    @classmethod
    def of(cls, batch: PackedBatch, *, before: int = 0, after: int = 0) -> Self:
        """Insert as many rows before and after the rows of each set."""
        row_shift = (before + after) * torch.arange(batch.sets + 1, device=batch.set_offsets.device)
        set_offsets = batch.set_offsets + row_shift
        place = (
            torch.arange(len(batch.tokens), device=row_shift.device) + before + row_shift[batch.set_of_row]
        )
        return cls(place, set_offsets, set_offsets[batch.subject_offsets])

    @property
    def set_of_row(self) -> Tensor:
        """The set of each flat row, i64 [flat rows]."""
        return torch.repeat_interleave(self.set_offsets.diff())


def numbers_within(offsets: Tensor) -> Tensor:
    """Number what `offsets` cut into pieces, from 0 in each piece: i64 [pieces + 1] → i64 [offsets[-1]]."""
    first = offsets[:-1].repeat_interleave(offsets.diff())
    return torch.arange(len(first), device=offsets.device) - first


class Planner(Protocol):
    """Plans the attention within pieces of rows, as `plan_attention` does."""

    def __call__(
        self, offsets: Tensor, *, is_query: Tensor | None = None, dtype: torch.dtype
    ) -> AttentionPlan: ...


def run_blocks(
    blocks: Sequence[FlatBlock],
    hidden_states: Tensor,
    offsets: Tensor,
    rows: Tensor,
    planner: Planner = plan_attention,
) -> ReadRows:
    """Run blocks in which rows of a patient attend to each other; the last one computes the read rows alone.

    Args:
        hidden_states: [flat rows, d_model].
        offsets: i64 [subjects + 1], in flat rows.
        rows: i64 [any], the flat rows to read.
        planner: of the attention of each block; by default all rows of a patient attend to each other.
    """
    is_read = torch.zeros(len(hidden_states), dtype=torch.bool, device=rows.device).index_fill_(0, rows, True)
    dtype = compute_dtype(hidden_states)
    plan = planner(offsets, dtype=dtype)
    for block in blocks[:-1]:
        hidden_states = block(hidden_states, plan)
    last_plan = planner(offsets, is_query=is_read, dtype=dtype)
    hidden_states = blocks[-1](hidden_states, last_plan, query_rows=is_read.nonzero().squeeze(1))
    return ReadRows(hidden_states, (is_read.cumsum(0) - 1).index_select(0, rows))


class FlatEncoder(Encoder):
    """BERT (Devlin et al. 2019) of NEST's rows and blocks: one piece per patient, rotary positions by row number.

    It has a tied token head, no set head, and reads no times. There are two blocks for each of the config's layers, as
    many as NEST has. Its subclasses differ in how rows of a patient attend to each other.
    """

    depends_on = frozenset({"order"})
    attention: ClassVar[type[Attention]] = Attention

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        blocks = nn.ModuleList(
            EncoderBlock(config.d_model, config.heads, config.d_ff, self.attention)
            for _ in range(2 * config.layers)
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

    def planner(self, batch: PackedBatch) -> Planner:
        """Return what plans the attention of a batch's blocks."""
        return plan_attention

    def read(self, batch: PackedBatch, rows: Tensor) -> ReadRows:
        """Return the given rows, i64 [any], after the final norm; the last block computes these alone."""
        offsets = batch.set_offsets[batch.subject_offsets]
        d_head, dtype = self.config.d_model // self.config.heads, self.embedding.weight.dtype
        positions = rotation(numbers_within(offsets), d_head, dtype)
        blocks = [partial(block, rotation=positions) for block in self.blocks]
        read = run_blocks(blocks, self.embedding(batch.tokens), offsets, rows, self.planner(batch))
        return replace(read, hidden_states=self.norm(read.hidden_states))

    def parts(self) -> dict[str, list[nn.Module]]:
        """Return the embedding of tokens."""
        return {"embedding": [self.embedding]}

    def units(self) -> Sequence[EncoderBlock]:
        """Return the blocks."""
        return self.blocks
