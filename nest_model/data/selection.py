"""Selections of sets and events: for each example the sets up to its target, and the events kept in each."""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np

from nest_model.data.seqsets import SeqSets, expand_ranges, offsets_of


@dataclass(frozen=True)
class Selection:
    """Examples as ranges of events, so that taking a few examples costs only those.

    [examples] `first_set`, `target_set` (both inclusive). The (example, set) pairs are concatenated; pair i keeps
    `event_counts[i]` events from `event_starts[i]` on, in the set's own order: a range of the event columns of
    `SeqSets`, or of `event_indices` if events in between were dropped.
    """

    first_set: np.ndarray
    target_set: np.ndarray
    event_starts: np.ndarray  # [pairs]
    event_counts: np.ndarray  # [pairs]
    event_indices: np.ndarray | None = None  # indices into the event columns

    @classmethod
    def of_sets(cls, seqsets: SeqSets, first_set: np.ndarray, target_set: np.ndarray) -> Self:
        """Select every event of the sets from `first_set` to `target_set`."""
        sets = expand_ranges(first_set, target_set - first_set + 1)
        starts = seqsets.event_offsets[sets]
        return cls(first_set, target_set, starts, seqsets.event_offsets[sets + 1] - starts)

    @classmethod
    def of_events(
        cls, first_set: np.ndarray, target_set: np.ndarray, event_counts: np.ndarray, events: np.ndarray
    ) -> Self:
        """Select the concatenated `events`, of which each pair takes its count."""
        return cls(first_set, target_set, offsets_of(event_counts)[:-1], event_counts, events)

    def __len__(self) -> int:
        return len(self.target_set)

    @cached_property
    def set_offsets(self) -> np.ndarray:
        """Offsets [examples + 1] into the pairs."""
        return offsets_of(self.target_set - self.first_set + 1)

    @property
    def sets(self) -> np.ndarray:
        """The set of each pair, [pairs]."""
        return expand_ranges(self.first_set, np.diff(self.set_offsets))

    @property
    def event_offsets(self) -> np.ndarray:
        """Offsets [pairs + 1] into `events`."""
        return offsets_of(self.event_counts)

    @property
    def example_of_pair(self) -> np.ndarray:
        """The example of each pair, [pairs]."""
        return np.repeat(np.arange(len(self)), np.diff(self.set_offsets))

    @property
    def pair_of_event(self) -> np.ndarray:
        """The pair of each kept event, [kept]."""
        return np.repeat(np.arange(len(self.event_counts)), self.event_counts)

    @property
    def events(self) -> np.ndarray:
        """Indices of the kept events into the event columns of `SeqSets`, [kept]."""
        if self.event_indices is None:
            return expand_ranges(self.event_starts, self.event_counts)
        return self._ranges_of(self.event_indices)

    @property
    def rows(self) -> np.ndarray:
        """The number of model rows of each example, [examples]: a [CLS] per set and a row per event."""
        events = np.diff(self.event_offsets[self.set_offsets])
        rows: np.ndarray = events + np.diff(self.set_offsets)
        return rows

    def values(self, column: np.ndarray) -> np.ndarray:
        """Return the kept events' values of an event column of `SeqSets`, [kept]."""
        return (
            self._ranges_of(column)
            if self.event_indices is None
            else column[self._ranges_of(self.event_indices)]
        )

    def take(self, examples: np.ndarray) -> Self:
        """Return the given examples, in the order given."""
        first, target = self.first_set[examples], self.target_set[examples]
        pairs = expand_ranges(self.set_offsets[examples], target - first + 1)
        return self._with(first, target, pairs, self.event_counts[pairs])

    def from_set(self, first_set: np.ndarray, max_events: int | None = None) -> Self:
        """Return the examples from a later `first_set` on, with at most the first `max_events` events of each set."""
        lengths = self.target_set - first_set + 1
        pairs = expand_ranges(self.set_offsets[1:] - lengths, lengths)
        counts = self.event_counts[pairs]
        kept_counts = counts if max_events is None else np.minimum(counts, max_events)
        return self._with(first_set, self.target_set, pairs, kept_counts)

    def _with(self, first: np.ndarray, target: np.ndarray, pairs: np.ndarray, counts: np.ndarray) -> Self:
        starts = self.event_starts[pairs]
        return replace(self, first_set=first, target_set=target, event_starts=starts, event_counts=counts)

    def _ranges_of(self, values: np.ndarray) -> np.ndarray:
        """Concatenate the pairs' ranges of `values`; adjacent ranges are copied together."""
        ends = self.event_starts + self.event_counts
        is_first = np.r_[True, self.event_starts[1:] != ends[:-1]][: len(ends)]
        is_last = np.r_[is_first[1:], True][: len(ends)]
        runs = zip(self.event_starts[is_first].tolist(), ends[is_last].tolist(), strict=True)
        return np.concatenate([values[:0], *(values[start:end] for start, end in runs)])


@dataclass(frozen=True)
class ContextCut:
    """The shares of all selected sets and events that the context limits leave out."""

    sets_share: float
    events_in_cut_sets_share: float
    events_in_long_sets_share: float
    events_beyond_rows_share: float = 0.0

    @property
    def events_share(self) -> float:
        """The share of the events, for whatever reason."""
        return self.events_in_cut_sets_share + self.events_in_long_sets_share + self.events_beyond_rows_share


def drop_random_events(selection: Selection, share: float, rng: np.random.Generator) -> Selection:
    """Drop each event with probability `share`, see `keep_events`."""
    return keep_events(selection, rng.random(int(selection.event_counts.sum())) >= share)


def keep_events(selection: Selection, is_kept: np.ndarray) -> Selection:
    """Keep some of the events, bool [kept], in their order; a set without events stays as its [CLS]."""
    kept_before = offsets_of(is_kept)
    counts = np.diff(kept_before[selection.event_offsets])
    return Selection.of_events(selection.first_set, selection.target_set, counts, selection.events[is_kept])


def whole_subjects(seqsets: SeqSets, subject_rows: np.ndarray) -> Selection:
    """Select every set and event of the given patients, the input of pretraining."""
    offsets = seqsets.subject_offsets
    return Selection.of_sets(seqsets, offsets[subject_rows], offsets[subject_rows + 1] - 1)


def before_last_filled_set(seqsets: SeqSets, subject_rows: np.ndarray) -> Selection:
    """Select the sets of the given patients that come before the last filled one; every patient has such a set."""
    return Selection.of_sets(
        seqsets, seqsets.subject_offsets[subject_rows], _last_filled_sets(seqsets)[subject_rows] - 1
    )


def has_filled_set(seqsets: SeqSets, subject_rows: np.ndarray) -> np.ndarray:
    """Return whether each patient has a set with an event, bool [patients]."""
    has_event: np.ndarray = _last_filled_sets(seqsets)[subject_rows] >= 0
    return has_event


def has_two_filled_sets(seqsets: SeqSets, subject_rows: np.ndarray) -> np.ndarray:
    """Return whether each patient has a filled set before the last filled one, bool [patients]."""
    last = np.maximum(_last_filled_sets(seqsets)[subject_rows], 0)
    first = seqsets.subject_offsets[subject_rows]
    has_past: np.ndarray = seqsets.event_offsets[last] > seqsets.event_offsets[first]
    return has_past


def _last_filled_sets(seqsets: SeqSets) -> np.ndarray:
    """Return each patient's last set with an event, -1 for a patient without one: i64 [patients]."""
    is_filled = np.diff(seqsets.event_offsets) > 0
    place = np.where(is_filled, np.arange(seqsets.sets), -1)
    last: np.ndarray = np.maximum.reduceat(place, seqsets.subject_offsets[:-1])
    return last


def limit_context(
    selection: Selection, *, max_sets: int, max_set_rows: int, max_rows: int | None = None
) -> tuple[Selection, ContextCut]:
    """Keep each example's last `max_sets` sets and the first events of each; then its newest `max_rows` rows.

    A set's [CLS] is one of its `max_set_rows`, and of all rows.
    """
    last_sets = selection.from_set(np.maximum(selection.first_set, selection.target_set - max_sets + 1))
    result = last_sets.from_set(last_sets.first_set, max_events=max_set_rows - 1)
    stages = [selection, last_sets, result]
    if max_rows is not None:
        stages.append(result := _newest_rows(result, max_rows))
    events = [int(stage.event_counts.sum()) for stage in stages]
    losses = [(before - after) / max(1, events[0]) for before, after in pairwise(events)]
    sets_share = 1 - len(result.event_counts) / max(1, len(selection.event_counts))
    return result, ContextCut(sets_share, *losses)


def _newest_rows(selection: Selection, max_rows: int) -> Selection:
    """Keep each example's newest rows: sets from the last one back, and of the first that has no room its last events.

    A set of which no event has room is left out with its [CLS]; the last set is one that has room.
    """
    rows = selection.event_counts + 1
    row_ends, last_pairs = np.cumsum(rows), selection.set_offsets[1:] - 1
    room = max_rows - (row_ends[last_pairs][selection.example_of_pair] - row_ends)
    has_room = room >= 2  # a [CLS] and an event
    sets = np.add.reduceat(has_room, selection.set_offsets[:-1])
    surplus = np.maximum(0, rows - room)[has_room]
    newest = selection.from_set(selection.target_set - sets + 1)
    return replace(
        newest, event_starts=newest.event_starts + surplus, event_counts=newest.event_counts - surplus
    )
