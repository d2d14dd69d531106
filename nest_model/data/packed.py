"""Packed rows, the input of every model call: no padding; offsets mark where sets and patients begin.

All randomness is drawn from (seed, epoch), so a run can resume in the middle of an epoch from two numbers.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
import torch
from torch import Generator, Tensor

from nest_model.config import ModelConfig
from nest_model.data.selection import Selection
from nest_model.data.seqsets import NO_TYPE, SeqSets
from schemas.tables.vocab import CLS


@dataclass(frozen=True)
class PackedBatch:
    """Whole patients, concatenated; each set is a [CLS] row followed by its event rows, in the set's order."""

    tokens: Tensor  # i64 [rows]
    hours: Tensor  # f32 [rows], since the set's start; 0 for [CLS] and for the [MASK] row of a masked set
    # f64 [rows], added to the attention scores of this key: log of the number of rows it stands for
    key_bias: Tensor
    set_offsets: Tensor  # i64 [sets + 1], in rows
    subject_offsets: Tensor  # i64 [subjects + 1], in sets
    days: Tensor  # f64 [sets], the set's position in its patient's history
    gaps: Tensor  # f64 [sets], days from the end of the set before, or from its start if it goes on; first set: 0
    visit_types: Tensor  # i64 [sets], places in the config's `visit_types`, or NO_TYPE
    days_of_year: Tensor  # i64 [sets], of the set's start, from 1

    @classmethod
    def from_events(
        cls,
        tokens: Tensor,
        hours: Tensor,
        events_per_set: Tensor,
        sets_per_subject: Tensor,
        days: Tensor,
        gaps: Tensor | None = None,
        visit_types: Tensor | None = None,
        days_of_year: Tensor | None = None,
    ) -> Self:
        """Pack concatenated events (set by set, patient by patient), with a [CLS] before each set.

        Args:
            tokens: i64 [events]. hours: f32 [events].
            events_per_set: i64 [sets], 0 allowed. sets_per_subject: i64 [subjects]. days: f64 [sets].
            gaps: f64 [sets]. visit_types, days_of_year: i64 [sets]. None, for an encoder that does not read them: 0,
                no type and 1 everywhere.
        """
        set_offsets = offsets(events_per_set + 1)
        # event i moves down by one [CLS] for each set so far
        rows = torch.arange(len(tokens)) + torch.repeat_interleave(events_per_set) + 1
        packed_tokens = torch.full((int(set_offsets[-1]),), CLS).index_copy_(0, rows, tokens)
        packed_hours = torch.zeros(len(packed_tokens)).index_copy_(0, rows, hours)
        return cls(
            tokens=packed_tokens,
            hours=packed_hours,
            key_bias=torch.zeros(len(packed_tokens), dtype=torch.float64),
            set_offsets=set_offsets,
            subject_offsets=offsets(sets_per_subject),
            days=days.double(),
            gaps=torch.zeros_like(days, dtype=torch.float64) if gaps is None else gaps.double(),
            visit_types=torch.full_like(events_per_set, NO_TYPE) if visit_types is None else visit_types,
            days_of_year=torch.ones_like(events_per_set) if days_of_year is None else days_of_year,
        )

    @property
    def cls_rows(self) -> Tensor:
        """The [CLS] row of each set, i64 [sets]."""
        return self.set_offsets[:-1]

    @property
    def set_of_row(self) -> Tensor:
        """The set of each row, i64 [rows]."""
        return torch.repeat_interleave(self.set_offsets.diff())

    @property
    def rows(self) -> np.ndarray:
        """The number of rows of each patient, i64 [subjects]; for a batch on the CPU."""
        return self.set_offsets[self.subject_offsets].diff().numpy()

    @property
    def subjects(self) -> int:
        return len(self.subject_offsets) - 1

    @property
    def sets(self) -> int:
        return len(self.set_offsets) - 1

    def slice_subjects(self, first: int, end: int) -> Self:
        """Return the patients `first` … `end - 1` as a batch."""
        first_set, end_set = self.subject_offsets[[first, end]].tolist()
        first_row, end_row = self.set_offsets[[first_set, end_set]].tolist()
        return type(self)(
            tokens=self.tokens[first_row:end_row],
            hours=self.hours[first_row:end_row],
            key_bias=self.key_bias[first_row:end_row],
            set_offsets=self.set_offsets[first_set : end_set + 1] - first_row,
            subject_offsets=self.subject_offsets[first : end + 1] - first_set,
            days=self.days[first_set:end_set],
            gaps=self.gaps[first_set:end_set],
            visit_types=self.visit_types[first_set:end_set],
            days_of_year=self.days_of_year[first_set:end_set],
        )

    def without_order_at_one_time(self, generator: Generator) -> Self:
        """Return the batch with the event rows of each set that have one time in a random order.

        They are stored by kind and code, so that a masked token would lie between its neighbours' codes: an encoder
        with positions by row number would read it off them.
        """
        starts = torch.zeros(len(self.tokens), dtype=torch.bool)
        starts[self.cls_rows] = True
        starts[1:] |= (self.hours.diff() != 0) | starts[:-1]  # the first event of a set begins one too
        keys = torch.rand(len(starts), generator=generator, dtype=torch.float64)
        return replace(self, tokens=self.tokens[(starts.cumsum(0) + keys).argsort()])

    def to(self, device: torch.device | str) -> Self:
        """Return the batch with every tensor on `device`."""
        return type(self)(**{field.name: getattr(self, field.name).to(device) for field in fields(self)})


def offsets(lengths: Tensor) -> Tensor:
    """Turn lengths into offsets starting at 0: [pieces] → i64 [pieces + 1]."""
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


def epoch_steps(examples: int, per_step: int, *, seed: int, epoch: int) -> list[np.ndarray]:
    """Shuffle the examples of one epoch into steps; the last step holds the rest."""
    order = np.random.default_rng([seed, epoch]).permutation(examples)
    return np.split(order, range(per_step, examples, per_step))


def micro_batches(rows: np.ndarray, row_budget: int) -> Iterator[slice]:
    """Cut examples into runs of at most `row_budget` rows; a longer example is a run of its own."""
    first, total = 0, 0
    for place, size in enumerate(rows.tolist()):
        if total and total + size > row_budget:
            yield slice(first, place)
            first, total = place, 0
        total += size
    if len(rows):
        yield slice(first, len(rows))


def pack(seqsets: SeqSets, selection: Selection, config: ModelConfig) -> PackedBatch:
    """Pack the selected events, with the config's position for each set."""
    return PackedBatch.from_events(
        tokens=torch.from_numpy(selection.values(seqsets.tokens).astype(np.int64)),
        hours=torch.from_numpy(selection.values(seqsets.hours)),
        events_per_set=torch.from_numpy(selection.event_counts),
        sets_per_subject=torch.from_numpy(np.diff(selection.set_offsets)),
        days=torch.from_numpy(_position(seqsets, selection, config).astype(np.float64)),
        gaps=torch.from_numpy(seqsets.days_since_end[selection.sets]),
        visit_types=torch.from_numpy(visit_types(seqsets, selection, config)),
        days_of_year=torch.from_numpy(seqsets.day_of_year[selection.sets]),
    )


def visit_types(seqsets: SeqSets, selection: Selection, config: ModelConfig) -> np.ndarray:
    """Return the type of each set among the types that the config names, i64 [pairs]; NO_TYPE for any other."""
    places = {name: place for place, name in enumerate(config.visit_types)}
    place_of_type = [places.get(name, NO_TYPE) for name in seqsets.admission_types]
    # the last place is that of sets without a type, whose number is -1
    types: np.ndarray = np.array([*place_of_type, NO_TYPE])[seqsets.admission_type[selection.sets]]
    return types


def seed_of(*numbers: int) -> int:
    """Derive a 63-bit seed from a few whole numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _position(seqsets: SeqSets, selection: Selection, config: ModelConfig) -> np.ndarray:
    """Return [pairs], days as stored, or the set's number within its patient."""
    sets = selection.sets
    if config.cse_position == "index":
        index: np.ndarray = sets - seqsets.first_set[sets]
        return index
    days: np.ndarray = getattr(seqsets, config.cse_position)[sets]
    return days
