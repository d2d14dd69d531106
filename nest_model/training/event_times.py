"""Points in time from which a patient's next events are told, and the days until they come.

A point is the last row of each day of each set, in MOTOR's order: of the last day the set's [SEP]. Days are counted
from the set's start. An event counts if it comes strictly later and in a later row, a diagnosis or procedure at its
set's end; a patient's last record, of whatever kind, ends what is known.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

import numpy as np
import torch
from torch import Generator, Tensor

from nest_model.data.code_events import CodeEvents
from nest_model.data.packed import PackedBatch
from nest_model.model.systems.motor.encoder import HOURS_PER_DAY, TimeOrder

MOST_POINTS = 32  # of a patient, drawn anew in each epoch


@dataclass(frozen=True)
class TimedBatch:
    """A batch with the days from each of its points until the next event of each task."""

    batch: PackedBatch
    rows: Tensor  # i64 [points], packed rows, patient by patient
    days: Tensor  # f32 [points, tasks], above 0, until the event or, without one, until the patient's last record
    is_event: Tensor  # bool [points, tasks]

    @classmethod
    def of(cls, batch: PackedBatch, tasks: CodeEvents, generator: Generator) -> Self:
        """Draw the points of a batch and look for what follows."""
        order = TimeOrder.of(batch, torch.from_numpy(tasks.is_coded_late))
        bounds = batch.set_offsets[batch.subject_offsets]
        subject = torch.repeat_interleave(bounds.diff())
        end = order.days.new_zeros(batch.subjects).scatter_reduce_(
            0, subject, order.days, "amax", include_self=False
        )
        is_point = _ends_a_day(order, batch) & (end[subject] > order.days)
        places = _draw(is_point.nonzero().squeeze(1), subject, generator)
        entry_place, entry_task = entries(batch.tokens[order.row], tasks)
        days = torch.full((len(places), len(tasks.names)), torch.inf, dtype=torch.float64)
        for first, last in pairwise(bounds.tolist()):
            points = _between(places, first, last)
            of_subject = _between(entry_place, first, last)
            _first_after(days[points], order, places[points], entry_place[of_subject], entry_task[of_subject])
        is_event = days.isfinite()
        follow_up = (end[subject] - order.days)[places]
        days = days.where(is_event, follow_up[:, None]).float()
        return cls(batch, order.row[places], days, is_event)

    def slice_subjects(self, first: int, end: int) -> Self:
        """Return the patients `first` … `end - 1`."""
        first_row, end_row = self.batch.set_offsets[self.batch.subject_offsets[[first, end]]].tolist()
        is_inside = (self.rows >= first_row) & (self.rows < end_row)
        return replace(
            self,
            batch=self.batch.slice_subjects(first, end),
            rows=self.rows[is_inside] - first_row,
            days=self.days[is_inside],
            is_event=self.is_event[is_inside],
        )

    def to(self, device: torch.device | str) -> Self:
        """Return the batch with every tensor on `device`."""
        tensors = {name: getattr(self, name).to(device) for name in ("rows", "days", "is_event")}
        return replace(self, batch=self.batch.to(device), **tensors)


def entries(tokens: Tensor, events: CodeEvents) -> tuple[Tensor, Tensor]:
    """Return the index and the event of each (token, event) pair, rising by index: i64 [entries] each.

    Args:
        tokens: i64 [n].
    """
    offsets = torch.from_numpy(events.offsets)
    first, counts = offsets[tokens], offsets.diff()[tokens]
    place = torch.repeat_interleave(counts)
    number = torch.arange(len(place)) - (counts.cumsum(0) - counts)[place]  # among the events of its token
    return place, torch.from_numpy(events.event)[first[place] + number]


def holders(batch: PackedBatch, events: CodeEvents) -> np.ndarray:
    """Return how many patients of a batch have each event, i64 [events]."""
    subject = torch.repeat_interleave(batch.set_offsets[batch.subject_offsets].diff())
    place, event = entries(batch.tokens, events)
    pairs = (subject[place] * len(events.names) + event).unique() % len(events.names)
    counts: np.ndarray = pairs.bincount(minlength=len(events.names)).numpy()
    return counts


def _ends_a_day(order: TimeOrder, batch: PackedBatch) -> Tensor:
    """Return whether each place is the last of a day of its set, bool [places]."""
    set_of_row, day = batch.set_of_row, (order.hours / HOURS_PER_DAY).floor()
    is_last = torch.ones_like(day, dtype=torch.bool)
    is_last[:-1] = (set_of_row.diff() > 0) | (day.diff() > 0)
    return is_last


def _draw(places: Tensor, subject: Tensor, generator: Generator) -> Tensor:
    """Return at most MOST_POINTS random places of each patient, rising."""
    order = torch.rand(len(places), generator=generator).argsort()
    order = order[subject[places[order]].argsort(stable=True)]
    counts = subject[places].bincount()
    number = torch.arange(len(places)) - torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    return places[order[number < MOST_POINTS]].sort().values


def _first_after(
    days: Tensor, order: TimeOrder, points: Tensor, entry_place: Tensor, entry_task: Tensor
) -> None:
    """Fill in the days until the first event of each task, [points, tasks], where there is one."""
    distance = order.days[entry_place] - order.days[points][:, None]
    is_later = (entry_place > points[:, None]) & (distance > 0)
    days.scatter_reduce_(1, entry_task.expand(distance.shape), distance.where(is_later, torch.inf), "amin")


def _between(rising: Tensor, first: int, end: int) -> slice:
    """Return where the numbers from `first` to `end - 1` are."""
    bounds = torch.searchsorted(rising, torch.tensor([first, end])).tolist()
    return slice(*bounds)
