"""What of the shards an example is made of: the sets up to its target, and the events kept in each."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from nest_model.data.seqsets import SeqSets, expand_ranges, offsets_of


@dataclass(frozen=True)
class Selection:
    """Examples as ranges of events, so that whoever takes a few pays for a few.

    [examples] `first_set`, `target_set` (both inclusive). The (example, set) pairs lie in a row; pair i keeps
    `event_counts[i]` events from `event_starts[i]` on, in the set's own order: a range of the event columns of
    `SeqSets`, or of `chosen` where events between the first and the last are left out.
    """

    first_set: np.ndarray
    target_set: np.ndarray
    event_starts: np.ndarray  # [pairs]
    event_counts: np.ndarray  # [pairs]
    chosen: np.ndarray | None = None  # indices into the event columns

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
        """Select `events`, laid end to end, of which each pair has its count."""
        return cls(first_set, target_set, offsets_of(event_counts)[:-1], event_counts, events)

    def __len__(self) -> int:
        return len(self.target_set)

    @cached_property
    def set_offsets(self) -> np.ndarray:
        """[examples + 1] into the pairs."""
        return offsets_of(self.target_set - self.first_set + 1)

    @property
    def sets(self) -> np.ndarray:
        """[pairs] the set of each pair."""
        return expand_ranges(self.first_set, np.diff(self.set_offsets))

    @property
    def event_offsets(self) -> np.ndarray:
        """[pairs + 1] into `events`."""
        return offsets_of(self.event_counts)

    @property
    def example_of_pair(self) -> np.ndarray:
        """[pairs] the example of each pair."""
        return np.repeat(np.arange(len(self)), np.diff(self.set_offsets))

    @property
    def pair_of_event(self) -> np.ndarray:
        """[kept] the pair of each event."""
        return np.repeat(np.arange(len(self.event_counts)), self.event_counts)

    @property
    def events(self) -> np.ndarray:
        """[kept] indices into the event columns of `SeqSets`."""
        if self.chosen is None:
            return expand_ranges(self.event_starts, self.event_counts)
        return self._ranges_of(self.chosen)

    @property
    def rows(self) -> np.ndarray:
        """[examples] rows a model computes: a [CLS] per set and one per event."""
        events = np.diff(self.event_offsets[self.set_offsets])
        return events + np.diff(self.set_offsets)

    def values(self, column: np.ndarray) -> np.ndarray:
        """[kept] the values of an event column of `SeqSets`."""
        return self._ranges_of(column) if self.chosen is None else column[self._ranges_of(self.chosen)]

    def take(self, examples: np.ndarray) -> Self:
        """Return the chosen examples, in the order given."""
        first, target = self.first_set[examples], self.target_set[examples]
        pairs = expand_ranges(self.set_offsets[examples], target - first + 1)
        return self._with(first, target, pairs, self.event_counts[pairs])

    def from_set(self, first_set: np.ndarray, max_events: int | None = None) -> Self:
        """Return the examples from a later `first_set` on, of each set at most its first `max_events` events."""
        lengths = self.target_set - first_set + 1
        pairs = expand_ranges(self.set_offsets[1:] - lengths, lengths)
        counts = self.event_counts[pairs]
        kept = counts if max_events is None else np.minimum(counts, max_events)
        return self._with(first_set, self.target_set, pairs, kept)

    def _with(self, first: np.ndarray, target: np.ndarray, pairs: np.ndarray, counts: np.ndarray) -> Self:
        starts = self.event_starts[pairs]
        return replace(self, first_set=first, target_set=target, event_starts=starts, event_counts=counts)

    def _ranges_of(self, values: np.ndarray) -> np.ndarray:
        """Lay the pairs' ranges of `values` end to end: those that touch are copied in one piece."""
        ends = self.event_starts + self.event_counts
        is_first = np.r_[True, self.event_starts[1:] != ends[:-1]][: len(ends)]
        is_last = np.r_[is_first[1:], True][: len(ends)]
        runs = zip(self.event_starts[is_first].tolist(), ends[is_last].tolist(), strict=True)
        return np.concatenate([values[:0], *(values[start:end] for start, end in runs)])


@dataclass(frozen=True)
class Cut:
    """What the context limits leave out, as shares of all sets and events selected."""

    sets_share: float
    events_in_cut_sets_share: float
    events_in_long_sets_share: float


def thin(selection: Selection, share: float, rng: np.random.Generator) -> Selection:
    """Leave out each event with probability `share`, see `keep_events`."""
    return keep_events(selection, rng.random(int(selection.event_counts.sum())) >= share)


def keep_events(selection: Selection, is_kept: np.ndarray) -> Selection:
    """Keep some of the events, bool [kept], in their order; every set stays, if only as its [CLS]."""
    before = offsets_of(is_kept)
    counts = np.diff(before[selection.event_offsets])
    return Selection.of_events(selection.first_set, selection.target_set, counts, selection.events[is_kept])


def whole_subjects(seqsets: SeqSets, subject_rows: np.ndarray) -> Selection:
    """Select every set and event of the given subjects: what pretraining sees."""
    offsets = seqsets.subject_offsets
    return Selection.of_sets(seqsets, offsets[subject_rows], offsets[subject_rows + 1] - 1)


def limit_context(selection: Selection, *, max_sets: int, max_set_rows: int) -> tuple[Selection, Cut]:
    """Keep the last `max_sets` sets and the first `max_set_rows - 1` events of each ([CLS] is a row)."""
    last_sets = selection.from_set(np.maximum(selection.first_set, selection.target_set - max_sets + 1))
    limited = last_sets.from_set(last_sets.first_set, max_events=max_set_rows - 1)
    sets = max(1, len(selection.event_counts))
    events = [int(chosen.event_counts.sum()) for chosen in (selection, last_sets, limited)]
    cut = Cut(
        sets_share=1 - len(limited.event_counts) / sets,
        events_in_cut_sets_share=1 - events[1] / max(1, events[0]),
        events_in_long_sets_share=(events[1] - events[2]) / max(1, events[0]),
    )
    return limited, cut
