"""What of the shards an example is made of: the sets up to its target, and the events kept in each."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from nest_model.data import SeqSets, expand_ranges, offsets_of


@dataclass(frozen=True)
class Selection:
    """Examples as indices into `SeqSets`.

    [examples] `first_set`, `target_set` (both inclusive). The (example, set) pairs lie in a row; pair i
    keeps the events `events[event_offsets[i]:event_offsets[i + 1]]`, in the set's own order.
    """

    first_set: np.ndarray
    target_set: np.ndarray
    event_offsets: np.ndarray  # [pairs + 1] into `events`
    events: np.ndarray  # [kept] indices into the event columns of SeqSets

    def __len__(self) -> int:
        return len(self.target_set)

    @cached_property
    def set_offsets(self) -> np.ndarray:
        """[examples + 1] into the pairs."""
        return offsets_of(self.target_set - self.first_set + 1)

    @cached_property
    def sets(self) -> np.ndarray:
        """[pairs] the set of each pair."""
        return expand_ranges(self.first_set, np.diff(self.set_offsets))

    @cached_property
    def event_counts(self) -> np.ndarray:
        """[pairs] events kept."""
        return np.diff(self.event_offsets)

    @cached_property
    def rows(self) -> np.ndarray:
        """[examples] rows a model computes: a [CLS] per set and one per event."""
        events = np.diff(self.event_offsets[self.set_offsets])
        return events + np.diff(self.set_offsets)

    def take(self, examples: np.ndarray) -> Self:
        """Return the chosen examples, in the order given."""
        first, target = self.first_set[examples], self.target_set[examples]
        pairs = expand_ranges(self.set_offsets[examples], target - first + 1)
        counts = self.event_counts[pairs]
        events = self.events[expand_ranges(self.event_offsets[pairs], counts)]
        return type(self)(first, target, offsets_of(counts), events)


@dataclass(frozen=True)
class Cut:
    """What the context limits leave out, as shares of all sets and events selected."""

    sets_share: float
    events_in_cut_sets_share: float
    events_in_long_sets_share: float


def thin(selection: Selection, share: float, rng: np.random.Generator) -> Selection:
    """Leave out each event with probability `share`; every set stays, if only as its [CLS]."""
    kept = rng.random(len(selection.events)) >= share
    before = np.concatenate([[0], np.cumsum(kept)])
    offsets = before[selection.event_offsets]
    return Selection(selection.first_set, selection.target_set, offsets, selection.events[kept])


def whole_subjects(seqsets: SeqSets, subject_rows: np.ndarray) -> Selection:
    """Select every set and event of the given subjects: what pretraining sees."""
    first = seqsets.subject_offsets[subject_rows]
    target = seqsets.subject_offsets[subject_rows + 1] - 1
    sets = expand_ranges(first, target - first + 1)
    counts = np.diff(seqsets.event_offsets)[sets]
    events = expand_ranges(seqsets.event_offsets[sets], counts)
    return Selection(first, target, offsets_of(counts), events)


def limit_context(selection: Selection, *, max_sets: int, max_set_rows: int) -> tuple[Selection, Cut]:
    """Keep the last `max_sets` sets and the first `max_set_rows - 1` events of each ([CLS] is a row)."""
    first = np.maximum(selection.first_set, selection.target_set - max_sets + 1)
    kept_sets = selection.target_set - first + 1
    pairs = expand_ranges(selection.set_offsets[1:] - kept_sets, kept_sets)
    counts = selection.event_counts[pairs]
    kept_counts = np.minimum(counts, max_set_rows - 1)
    events = selection.events[expand_ranges(selection.event_offsets[pairs], kept_counts)]
    cut = Cut(
        sets_share=1 - len(pairs) / max(1, len(selection.sets)),
        events_in_cut_sets_share=1 - counts.sum() / max(1, len(selection.events)),
        events_in_long_sets_share=(counts.sum() - kept_counts.sum()) / max(1, len(selection.events)),
    )
    return Selection(first, selection.target_set, offsets_of(kept_counts), events), cut
