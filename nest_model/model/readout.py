"""The readout of an example for a task's head: its last [CLS], or several summaries of its history."""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, Self

import torch
from torch import Tensor

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.model.heads import Votes

LAST_SETS = 3
"""The number of sets whose [CLS] the readout `history` uses: three show a change and whether it continues."""

_PARTS = {"cls": 1, "mean_pool": 1, "history": 2 * LAST_SETS + 7}

LEAST_SPREAD_HOURS = 1 / 60
"""The smallest spread of hours in a set: below a minute, events count as simultaneous."""


class OutputRows(Protocol):
    """An encoder's output at some rows, each distinct row once; see `encoder.ReadRows`."""

    @property
    def hidden_states(self) -> Tensor: ...

    @property
    def place(self) -> Tensor: ...


class RowReader(Protocol):
    """What a readout asks of an encoder; see `encoder.Encoder`."""

    config: ModelConfig
    item_of_token: Tensor

    def read(self, batch: PackedBatch, rows: Tensor) -> OutputRows: ...

    def token_vectors(self, tokens: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class MeasuredValues:
    """The embedded measured values of a batch, each with its cell: one item in one set.

    A mean over all values of a set depends on which items were measured; values of one item only on the patient.
    """

    vectors: Tensor  # [values, d_model]
    hours: Tensor  # [values], of the embedding's dtype
    cell_of_value: Tensor  # i64 [values], index into `cells`
    cells: Tensor  # i64 [cells], rising: set · `items` + item
    items: int  # above any item's number

    @classmethod
    def of(cls, vectors: Tensor, hours: Tensor, set_of_event: Tensor, item: Tensor, items: int) -> Self:
        """Keep the events that measure an item.

        Args:
            vectors: [events, d_model]. hours: [events]. set_of_event: i64 [events].
            item: i64 [events], below `items`; negative: no measurement.
        """
        values = (item >= 0).nonzero().squeeze(1)
        keys = set_of_event.index_select(0, values) * items + item.index_select(0, values)
        cells, cell_of_value = keys.unique(return_inverse=True)
        return cls(
            vectors.index_select(0, values),
            hours.index_select(0, values).to(vectors.dtype),
            cell_of_value,
            cells,
            items,
        )

    def changes(self, sets: int, has_before: Tensor) -> Tensor:
        """Return the mean change of the items that a set shares with the set before it, [sets, d_model].

        An item's change is the mean embedding of its values minus that in the set before; 0 if no item is shared.

        Args:
            has_before: bool [sets], whether the set before belongs to the same patient.
        """
        means = mean_by(self.vectors, self.cell_of_value, len(self.cells))
        set_of_cell = self.cells // self.items
        cells_before = self.cells - self.items
        partner = torch.searchsorted(self.cells, cells_before).clamp(max=max(len(self.cells) - 1, 0))
        is_shared = (self.cells[partner] == cells_before) & has_before[set_of_cell]
        shared_cells = is_shared.nonzero().squeeze(1)
        differences = means.index_select(0, shared_cells) - means.index_select(
            0, partner.index_select(0, shared_cells)
        )
        return mean_by(differences, set_of_cell.index_select(0, shared_cells), sets)

    def drifts(self, sets: int) -> Tensor:
        """Return how the values of each set's items vary with the hours, [sets, d_model].

        It is the mean of the values weighted by their hours minus the item's mean hours, in units of the root mean
        square of these differences in the set: when an item is measured early or late then carries no information.
        """
        offsets = self.hours - mean_by(self.hours, self.cell_of_value, len(self.cells))[self.cell_of_value]
        return weighted_by_hours(self.vectors, offsets, (self.cells // self.items)[self.cell_of_value], sets)


def num_parts(readout: str) -> int:
    """Return the number of d_model vectors in a readout."""
    return _PARTS[readout]


def read_out(encoder: RowReader, batch: PackedBatch) -> Tensor:
    """Return the config's readout of each patient of a batch, f32 [subjects, parts, d_model].

    `cls` (the paper): the last set's [CLS] after all layers. `mean_pool` (the paper's ablation): the mean of the last
    set's events after all layers, each as often as it occurs; its [CLS] if it has none. `history`, with sets counted
    from the last:
      - the [CLS] of the last three sets, the last first;
      - the mean token embedding of the last set, of the second last, and of all sets before the last;
      - changes: the [CLS] of the last set minus the second last's, of the second last minus the third last's, and the
        mean embedding of the last set minus the second last's;
      - the drift of the last set: how its embeddings vary with its hours, as their mean weighted by the hours' standard
        scores; 0 for a model that does not read the hours of a set's rows;
      - changes and drift of measured values, item by item: last set against second last, second last against third
        last, and within the last set, see `MeasuredValues`.
    A part is 0 if its set is missing or has no event. Changes are separate parts because a head on [CLS] alone, linear
    or not, would have to learn when there is no earlier set to compare with.
    """
    last, first = batch.subject_offsets[1:] - 1, batch.subject_offsets[:-1]
    if encoder.config.readout == "cls":
        return _cls(encoder, batch, last)[:, None]
    if encoder.config.readout == "mean_pool":
        return _mean_of_events(encoder, batch, last)[:, None]
    places = last[:, None] - torch.arange(LAST_SETS, device=last.device)
    exists = places >= first[:, None]
    places = torch.maximum(places, first[:, None])
    cls = _cls(encoder, batch, places.flatten()).unflatten(0, places.shape) * exists[..., None]
    events = _Events.of(encoder, batch)
    has_mean = exists & (events.counts > 0)[places]
    means = events.means[places] * has_mean[..., None]
    parts = [
        cls,
        means[:, :2],
        events.mean_before_last(batch)[:, None],
        _changes(cls, exists),
        _changes(means[:, :2], has_mean[:, :2]),
        events.drifts[last][:, None],
        events.item_changes(batch)[places[:, : LAST_SETS - 1]],
        events.item_drifts[last][:, None],
    ]
    return torch.cat(parts, dim=1)


def vote_logits(votes: Votes, encoder: RowReader, batch: PackedBatch) -> Tensor:
    """Return the logits from the votes of a batch's events, [subjects, classes]."""
    events = _Events.of(encoder, batch)
    is_last = torch.zeros(batch.sets, dtype=torch.bool, device=batch.tokens.device)
    is_last = is_last.index_fill(0, batch.subject_offsets[1:] - 1, True)
    subject_of_set = torch.repeat_interleave(batch.subject_offsets.diff())
    logits: Tensor = votes(
        events.vectors, subject_of_set[events.set_of_event], is_last[events.set_of_event], batch.subjects
    )
    return logits


def _changes(of_sets: Tensor, exists: Tensor) -> Tensor:
    """Return each set minus the set before, 0 if either is missing: [n, sets, d] → [n, sets - 1, d]."""
    return (of_sets[:, :-1] - of_sets[:, 1:]) * (exists[:, :-1] & exists[:, 1:])[..., None]


def _cls(encoder: RowReader, batch: PackedBatch, sets: Tensor) -> Tensor:
    read = encoder.read(batch, batch.cls_rows[sets])
    return read.hidden_states.index_select(0, read.place)


def _mean_of_events(encoder: RowReader, batch: PackedBatch, sets: Tensor) -> Tensor:
    """Return the mean output of each set's events, of its [CLS] if it has none: i64 [n] → [n, d_model]."""
    lengths = batch.set_offsets.diff().index_select(0, sets)
    counts = (lengths - 1).clamp(min=1)
    group = torch.repeat_interleave(counts)
    first_rows = batch.cls_rows.index_select(0, sets) + (lengths > 1)
    rows = torch.arange(len(group), device=group.device) + (first_rows - (counts.cumsum(0) - counts))[group]
    read = encoder.read(batch, rows)
    return mean_by(read.hidden_states.index_select(0, read.place), group, len(sets))


@dataclass(frozen=True)
class _Events:
    """A batch's embedded events, without [CLS] rows, and their summaries per set."""

    vectors: Tensor  # [events, d_model]
    set_of_event: Tensor  # i64 [events]
    counts: Tensor  # [sets], of the events' dtype
    hours: Tensor  # [events]
    has_hours: bool  # whether the model reads the hours
    item: Tensor  # i64 [events], NO_ITEM: no measurement
    items: int  # above any item's number

    @classmethod
    def of(cls, encoder: RowReader, batch: PackedBatch) -> "_Events":
        is_event = torch.ones_like(batch.tokens, dtype=torch.bool).index_fill(0, batch.cls_rows, False)
        rows = is_event.nonzero().squeeze(1)
        tokens = batch.tokens.index_select(0, rows)
        vectors = encoder.token_vectors(tokens)
        return cls(
            vectors=vectors,
            set_of_event=batch.set_of_row.index_select(0, rows),
            counts=batch.set_offsets.diff().to(vectors.dtype) - 1,
            hours=batch.hours.index_select(0, rows).to(vectors.dtype),
            has_hours=encoder.config.timed_rows,
            item=encoder.item_of_token.index_select(0, tokens),
            items=encoder.config.vocab_size,
        )

    @property
    def sets(self) -> int:
        return len(self.counts)

    @cached_property
    def means(self) -> Tensor:
        """The mean embedding of each set, [sets, d_model]; 0 for a set without events."""
        return mean_by(self.vectors, self.set_of_event, self.sets)

    @property
    def drifts(self) -> Tensor:
        """How the embeddings of each set vary with its hours, [sets, d_model], see `read_out`."""
        if not self.has_hours:
            return torch.zeros_like(self.means)
        offsets = self.hours - mean_by(self.hours, self.set_of_event, self.sets)[self.set_of_event]
        return weighted_by_hours(self.vectors, offsets, self.set_of_event, self.sets)

    @cached_property
    def measured_values(self) -> MeasuredValues:
        return MeasuredValues.of(self.vectors, self.hours, self.set_of_event, self.item, self.items)

    def item_changes(self, batch: PackedBatch) -> Tensor:
        """Return the changes of measured values, [sets, d_model]; 0 for a patient's first set."""
        is_first = torch.zeros(self.sets, dtype=torch.bool, device=self.counts.device)
        is_first = is_first.index_fill(0, batch.subject_offsets[:-1], True)
        return self.measured_values.changes(self.sets, ~is_first)

    @property
    def item_drifts(self) -> Tensor:
        """The drift of measured values in each set, [sets, d_model]."""
        return self.measured_values.drifts(self.sets) if self.has_hours else torch.zeros_like(self.means)

    def mean_before_last(self, batch: PackedBatch) -> Tensor:
        """Return the mean embedding of all events before each patient's last set, [subjects, d_model]."""
        sets_before = batch.subject_offsets.diff() - 1
        is_before = torch.ones_like(self.counts).index_fill(0, batch.subject_offsets[1:] - 1, 0)
        subject = torch.repeat_interleave(sets_before + 1)
        shares = is_before * self.counts
        sums = self.means.new_zeros(len(sets_before), self.means.shape[1]).index_add(
            0, subject, self.means * shares[:, None]
        )
        events = shares.new_zeros(len(sets_before)).index_add(0, subject, shares)
        return sums / events.clamp(min=1)[:, None]


def weighted_by_hours(vectors: Tensor, offsets: Tensor, set_of_event: Tensor, sets: int) -> Tensor:
    """Return each set's mean of its events weighted by their hours, [sets, d_model].

    Args:
        offsets: [events], hours minus a mean; here scaled to a spread of 1 in every set.
    """
    spread = mean_by(offsets.square(), set_of_event, sets).sqrt().clamp(min=LEAST_SPREAD_HOURS)
    return mean_by(vectors * (offsets / spread[set_of_event])[:, None], set_of_event, sets)


def mean_by(values: Tensor, group: Tensor, groups: int) -> Tensor:
    """Return the mean of each group, 0 for an empty group: [n, …] → [groups, …].

    Args:
        group: i64 [n].
    """
    sums = values.new_zeros(groups, *values.shape[1:]).index_add(0, group, values)
    counts = values.new_zeros(groups).index_add(0, group, torch.ones_like(group, dtype=values.dtype))
    return sums / counts.clamp(min=1).view(-1, *[1] * (values.dim() - 1))
