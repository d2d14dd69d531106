"""What a task's head reads of an example: its last [CLS] or, beside it, what else a history holds."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from nest_model.data.packed import PackedBatch
from nest_model.model.encoder import NestModel
from nest_model.model.heads import Votes

LAST_SETS = 3
"""So many sets are read at their [CLS] by `history`: a change, and whether it goes on."""

_PARTS = {"cls": 1, "history": 2 * LAST_SETS + 7}

LEAST_SPREAD_HOURS = 1 / 60
"""Events of a set that lie nearer together than a minute are told apart by no time."""


@dataclass(frozen=True)
class MeasuredValues:
    """The values that some sets of a batch hold, embedded, with the cell of each: one item in one set.

    A mean over all values of a set moves with what was measured; the values of one item move with the patient alone.
    """

    embedded: Tensor  # [values, d_model]
    hours: Tensor  # [values], of the embedding's dtype
    cell_of_value: Tensor  # i64 [values], of `cells`
    cells: Tensor  # i64 [cells], rising: set · `items` + item
    items: int  # more than any item's number

    @classmethod
    def of(cls, embedded: Tensor, hours: Tensor, set_of_event: Tensor, item: Tensor, items: int) -> Self:
        """Keep the events with an item.

        Args:
            embedded: [events, d_model]. hours: [events]. set_of_event: i64 [events].
            item: i64 [events], below `items`; negative where nothing is measured.
        """
        values = (item >= 0).nonzero().squeeze(1)
        keys = set_of_event.index_select(0, values) * items + item.index_select(0, values)
        cells, cell_of_value = keys.unique(return_inverse=True)
        return cls(
            embedded.index_select(0, values),
            hours.index_select(0, values).to(embedded.dtype),
            cell_of_value,
            cells,
            items,
        )

    def changes(self, sets: int, has_before: Tensor) -> Tensor:
        """Return each set's mean over the items that both it and the one before hold, [sets, d_model].

        Of an item it is the mean embedding of its values less that of the set's before; 0 where they share none.

        Args:
            has_before: bool [sets], whether the set before is the same subject's.
        """
        means = mean_by(self.embedded, self.cell_of_value, len(self.cells))
        set_of_cell = self.cells // self.items
        cells_before = self.cells - self.items
        partner = torch.searchsorted(self.cells, cells_before).clamp(max=max(len(self.cells) - 1, 0))
        is_shared = (self.cells[partner] == cells_before) & has_before[set_of_cell]
        shared = is_shared.nonzero().squeeze(1)
        differences = means.index_select(0, shared) - means.index_select(0, partner.index_select(0, shared))
        return mean_by(differences, set_of_cell.index_select(0, shared), sets)

    def drifts(self, sets: int) -> Tensor:
        """Return how the values of each set go with its hours, item by item, [sets, d_model].

        Their mean after each is multiplied by its hours less the mean of its item's, in units of the root mean
        square of these over the set: so what is measured late rather than often early tells nothing.
        """
        centred = self.hours - mean_by(self.hours, self.cell_of_value, len(self.cells))[self.cell_of_value]
        return weighted_by_hours(self.embedded, centred, (self.cells // self.items)[self.cell_of_value], sets)


def num_parts(readout: str) -> int:
    """Return how many vectors of d_model a readout gives of each example."""
    return _PARTS[readout]


def read_out(encoder: NestModel, batch: PackedBatch) -> Tensor:
    """Return what the config's readout gives of each subject of a batch, f32 [subjects, parts, d_model].

    `cls`, the paper's: the last set's [CLS] after all layers. `history`:
      - the [CLS] of the last three sets, the last first;
      - the mean token embedding of the last set, of the one before it, and of all the sets before the last;
      - the changes: the [CLS] of the last set less the one's before, of that one less the one's before it, and the
        last set's mean embedding less the one's before;
      - the drift of the last set: how its embeddings go with its hours, their mean after each is multiplied by its
        hours' standard score. Of a model that does not read the hours of a set's rows it is 0;
      - changes and drift of what is measured, item by item: of the last set against the one before, of that one
        against the one before it, and within the last, see `MeasuredValues`.
    A part of a set that is not there, or that has no event, is 0. That is why changes are parts of their own: a head
    on [CLS] alone, linear or not, must first learn when there is nothing to compare with.
    """
    last, first = batch.subject_offsets[1:] - 1, batch.subject_offsets[:-1]
    if encoder.config.readout == "cls":
        return _cls(encoder, batch, last)[:, None]
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


def vote(votes: Votes, encoder: NestModel, batch: PackedBatch) -> Tensor:
    """Return the logits that a batch's events vote for, [subjects, classes]."""
    events = _Events.of(encoder, batch)
    is_last = torch.zeros(batch.sets, dtype=torch.bool, device=batch.tokens.device)
    is_last = is_last.index_fill(0, batch.subject_offsets[1:] - 1, True)
    subject_of_set = torch.repeat_interleave(batch.subject_offsets.diff())
    return votes(
        events.embedded, subject_of_set[events.set_of_event], is_last[events.set_of_event], batch.subjects
    )


def _changes(of_sets: Tensor, exists: Tensor) -> Tensor:
    """Return each set's less the one's before, 0 where either is not there: [n, sets, d] → [n, sets - 1, d]."""
    return (of_sets[:, :-1] - of_sets[:, 1:]) * (exists[:, :-1] & exists[:, 1:])[..., None]


def _cls(encoder: NestModel, batch: PackedBatch, sets: Tensor) -> Tensor:
    read = encoder.read(batch, batch.cls_rows[sets])
    return read.hidden.index_select(0, read.place)


@dataclass(frozen=True)
class _Events:
    """A batch's events without its [CLS] rows, embedded, and what they come to set by set."""

    embedded: Tensor  # [events, d_model]
    set_of_event: Tensor  # i64 [events]
    counts: Tensor  # [sets], of the events' dtype
    hours: Tensor  # [events]
    timed: bool  # whether the model reads the hours
    item: Tensor  # i64 [events], NO_ITEM where nothing is measured
    items: int  # more than any item's number

    @classmethod
    def of(cls, encoder: NestModel, batch: PackedBatch) -> "_Events":
        is_event = torch.ones_like(batch.tokens, dtype=torch.bool).index_fill(0, batch.cls_rows, False)
        rows = is_event.nonzero().squeeze(1)
        tokens = batch.tokens.index_select(0, rows)
        embedded = encoder.embedding(tokens)
        return cls(
            embedded=embedded,
            set_of_event=batch.set_of_row.index_select(0, rows),
            counts=batch.set_offsets.diff().to(embedded.dtype) - 1,
            hours=batch.hours.index_select(0, rows).to(embedded.dtype),
            timed=encoder.config.timed_rows,
            item=encoder.item_of_token.index_select(0, tokens),
            items=encoder.config.vocab_size,
        )

    @property
    def sets(self) -> int:
        return len(self.counts)

    @cached_property
    def means(self) -> Tensor:
        """The mean embedding of each set, [sets, d_model]; 0 of a set without events."""
        return mean_by(self.embedded, self.set_of_event, self.sets)

    @property
    def drifts(self) -> Tensor:
        """How the embeddings of each set go with its hours, [sets, d_model], see `read_out`."""
        if not self.timed:
            return torch.zeros_like(self.means)
        centred = self.hours - mean_by(self.hours, self.set_of_event, self.sets)[self.set_of_event]
        return weighted_by_hours(self.embedded, centred, self.set_of_event, self.sets)

    @cached_property
    def measured(self) -> MeasuredValues:
        return MeasuredValues.of(self.embedded, self.hours, self.set_of_event, self.item, self.items)

    def item_changes(self, batch: PackedBatch) -> Tensor:
        """Return the changes of what is measured, [sets, d_model]; 0 of a subject's first set."""
        is_first = torch.zeros(self.sets, dtype=torch.bool, device=self.counts.device)
        is_first = is_first.index_fill(0, batch.subject_offsets[:-1], True)
        return self.measured.changes(self.sets, ~is_first)

    @property
    def item_drifts(self) -> Tensor:
        return self.measured.drifts(self.sets) if self.timed else torch.zeros_like(self.means)

    def mean_before_last(self, batch: PackedBatch) -> Tensor:
        """Return the mean embedding of all events before each subject's last set, [subjects, d_model]."""
        sets_before = batch.subject_offsets.diff() - 1
        is_before = torch.ones_like(self.counts).index_fill(0, batch.subject_offsets[1:] - 1, 0)
        subject = torch.repeat_interleave(sets_before + 1)
        shares = is_before * self.counts
        sums = self.means.new_zeros(len(sets_before), self.means.shape[1]).index_add(
            0, subject, self.means * shares[:, None]
        )
        events = shares.new_zeros(len(sets_before)).index_add(0, subject, shares)
        return sums / events.clamp(min=1)[:, None]


def weighted_by_hours(embedded: Tensor, centred: Tensor, set_of_event: Tensor, sets: int) -> Tensor:
    """Return each set's mean of its events after each is multiplied by its hours, [sets, d_model].

    Args:
        centred: [events], hours less a mean; here brought to a spread of 1 in every set.
    """
    spread = mean_by(centred.square(), set_of_event, sets).sqrt().clamp(min=LEAST_SPREAD_HOURS)
    return mean_by(embedded * (centred / spread[set_of_event])[:, None], set_of_event, sets)


def mean_by(values: Tensor, group: Tensor, groups: int) -> Tensor:
    """Return the mean of each group, 0 of one without members: [n, …] → [groups, …].

    Args:
        group: i64 [n].
    """
    sums = values.new_zeros(groups, *values.shape[1:]).index_add(0, group, values)
    counts = values.new_zeros(groups).index_add(0, group, torch.ones_like(group, dtype=values.dtype))
    return sums / counts.clamp(min=1).view(-1, *[1] * (values.dim() - 1))
