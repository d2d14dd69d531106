"""MOTOR: a causal encoder of sets of events in the order of time, trained to tell when the next ones come.

Steinberg et al., MOTOR: a time-to-event foundation model for structured medical records (ICLR 2024). The blocks are
NEST's; the times to many events have piecewise constant hazards, of which the head is a low-rank product.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, cast

import pyarrow as pa
import torch
from torch import Tensor, nn

from nest_model.config import ModelConfig
from nest_model.data.code_events import CodeEvents
from nest_model.data.packed import PackedBatch
from nest_model.model.attention import plan_attention
from nest_model.model.encoder import Encoder, ReadRows
from nest_model.model.gather import take
from nest_model.model.layers import EncoderBlock, compute_dtype, initialise, rotation
from schemas.tables.vocab import SEP

PIECES, RANK, MOST_TASKS = 7, 32, 512
NO_EVENT = -1  # of a task that the training patients leave unused
HOURS_PER_DAY = 24.0


@dataclass(frozen=True)
class TimeOrder:
    """The rows of a batch as MOTOR reads them: the events of each set by hour, those coded late, then the set's [SEP].

    Each set has the places of its packed rows; its [CLS] row is left out and stands for the [SEP]. Events of the same
    hour are ordered by token, so that the stored order does not matter. Events coded late, whatever their hour, and the
    [SEP] are at the time of the set's last other event, or at the set's start if no other event is later. Sets are
    read one after the other, also where they overlap in time.
    """

    row: Tensor  # i64 [places], the packed row; at a [SEP] the set's [CLS] row
    place: Tensor  # i64 [rows], the reverse
    hours: Tensor  # f64 [places], since the set's start
    days: Tensor  # f64 [places], as `PackedBatch.days`

    @classmethod
    def of(cls, batch: PackedBatch, is_coded_late: Tensor) -> Self:
        """Order the rows of a batch.

        Args:
            is_coded_late: bool [vocab_size], see `CodeEvents`.
        """
        set_of_row = batch.set_of_row
        part_of_set = is_coded_late[batch.tokens].long().index_fill(0, batch.cls_rows, 2)
        hours, is_timed = batch.hours.double(), part_of_set == 0
        end_of_set = hours.new_zeros(len(batch.days)).scatter_reduce_(
            0, set_of_row, hours.where(is_timed, 0.0), "amax"
        )
        hours = hours.where(is_timed, end_of_set[set_of_row])
        row = batch.tokens.argsort(stable=True)
        row = row[hours[row].argsort(stable=True)]
        row = row[(3 * set_of_row + part_of_set)[row].argsort(stable=True)]
        place = torch.empty_like(row).index_copy_(0, row, torch.arange(len(row), device=row.device))
        days = batch.days[set_of_row] + hours / HOURS_PER_DAY
        return cls(row, place, hours[row], days[row])


class TimeToEventHead(nn.Module):
    """The log hazard of each task in each piece of time: a task's weights times a state's vector for the piece.

    Steinberg et al. 2024, section 3.2: a low-rank product, with a bias for each task. Its weights start at 0, so that
    it starts at the hazards of its bias. `tasks` says what it learnt to tell, `edges` where the pieces of time meet.
    """

    edges: Tensor  # f32 [PIECES - 1], in days, rising
    tasks: Tensor  # i64 [tasks], index into the names of the vocabulary's CodeEvents, or NO_EVENT

    def __init__(self, d_model: int, tasks: int) -> None:
        super().__init__()
        self.latent = nn.Linear(d_model, PIECES * RANK)
        self.out = nn.Linear(RANK, tasks)
        self.register_buffer("edges", torch.arange(1.0, PIECES))
        self.register_buffer("tasks", torch.full((tasks,), NO_EVENT))

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Return log hazards per day: [points, d_model] → [points, PIECES, tasks], computed outside autocast."""
        weight = self.out.weight
        with torch.autocast(hidden_states.device.type, enabled=False):
            latent: Tensor = self.latent(hidden_states.to(weight.dtype))
            log_hazards: Tensor = self.out(latent.unflatten(-1, (PIECES, RANK)))
        return log_hazards


class Motor(Encoder):
    """A flat causal encoder with rotary positions by days, and its time-to-event head; as many blocks as NEST has.

    A row sees those before it in `TimeOrder`: of its own set nothing later, but all of the sets before its own, so that
    where sets overlap in time it may see what happened after it. What is read at a set's [CLS] row is the state of its
    [SEP]. The buffer `is_coded_late`, bool [vocab_size], says which tokens are coded at their set's end, once the
    vocabulary is known.
    """

    system = "motor"
    depends_on = frozenset({"hours", "days"})
    unused_in_tasks = ("time_to_event.",)
    events: CodeEvents | None = None  # of its vocabulary; only pretraining has to know it
    is_coded_late: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        blocks = nn.ModuleList(
            EncoderBlock(config.d_model, config.heads, config.d_ff) for _ in range(2 * config.layers)
        )
        self.blocks = cast("Sequence[EncoderBlock]", blocks)
        self.norm = nn.LayerNorm(config.d_model, bias=False)
        self.time_to_event = TimeToEventHead(config.d_model, num_tasks(config))
        self.register_buffer("is_coded_late", torch.zeros(config.vocab_size, dtype=torch.bool))
        initialise(self, self.blocks)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
        nn.init.zeros_(self.time_to_event.out.weight)

    @classmethod
    def num_parameters(cls, config: ModelConfig) -> int:
        """Return the number of parameters of a model of this shape, without building it."""
        d = config.d_model
        blocks = 2 * config.layers * (4 * d * d + 3 * d * config.d_ff + 2 * d)
        head = (d + 1) * PIECES * RANK + (RANK + 1) * num_tasks(config)
        return config.vocab_size * d + blocks + d + head

    def describe_tokens(self, tokens: pa.Table) -> None:
        """Take the measured items, the events and what is coded late from a vocabulary, sorted by token id."""
        super().describe_tokens(tokens)
        self.events = CodeEvents.of(tokens)
        self.is_coded_late.copy_(torch.from_numpy(self.events.is_coded_late))

    def read(self, batch: PackedBatch, rows: Tensor) -> ReadRows:
        """Return the given rows, i64 [any], after the final norm; at a [CLS] row the state of the set's [SEP]."""
        order = TimeOrder.of(batch, self.is_coded_late)
        tokens = batch.tokens.index_fill(0, batch.cls_rows, SEP)
        hidden_states: Tensor = self.embedding(tokens.index_select(0, order.row))
        positions = rotation(
            order.days, self.config.d_model // self.config.heads, self.embedding.weight.dtype
        )
        offsets = batch.set_offsets[batch.subject_offsets]
        plan = plan_attention(offsets, causal=True, dtype=compute_dtype(hidden_states))
        for block in self.blocks:
            hidden_states = block(hidden_states, plan, positions)
        places = order.place.index_select(0, rows)
        is_read = torch.zeros_like(order.row, dtype=torch.bool).index_fill_(0, places, True)
        hidden_states = take(hidden_states, is_read.nonzero().squeeze(1))
        return ReadRows(self.norm(hidden_states), (is_read.cumsum(0) - 1).index_select(0, places))

    def parts(self) -> dict[str, list[nn.Module]]:
        """Return the embedding of tokens."""
        return {"embedding": [self.embedding]}

    def units(self) -> Sequence[EncoderBlock]:
        """Return the blocks."""
        return self.blocks


def num_tasks(config: ModelConfig) -> int:
    """Return how many events the head tells the time of: 512, as many as d_model has if that is fewer."""
    return min(MOST_TASKS, config.d_model)


ENCODER = Motor
