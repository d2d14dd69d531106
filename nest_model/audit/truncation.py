"""Proof on the cohort itself: without all that comes after a prediction a model sees the same of it.

Looks at what comes out of the selector, not at how it works: each prediction gets a patient of its own, who has no
later stay and no later event.
"""

from dataclasses import replace

import numpy as np

from nest_model.data import history as selector
from nest_model.data.labels import Labels
from nest_model.data.selection import Selection
from nest_model.data.seqsets import NO_TIME, SeqSets, expand_ranges, offsets_of

EVENTS_AT_A_TIME = 4_000_000
MOST_EVENTS = 20_000_000
"""Copies of events that are looked at; of more predictions than that a part is drawn."""


def count_changed(seqsets: SeqSets, labels: Labels, *, seed: int) -> tuple[int, int]:
    """Return how many predictions see something else once the future is gone, and how many were looked at."""
    sample, changed = _affordable(seqsets, labels, seed), 0
    sizes = np.cumsum(_events_of(seqsets, labels)[sample]) // EVENTS_AT_A_TIME
    for part in np.split(sample, np.flatnonzero(np.diff(sizes)) + 1):
        changed += _changed(seqsets, labels, part)
    return changed, len(sample)


def without_future(
    seqsets: SeqSets, subject_rows: np.ndarray, predict_at_us: np.ndarray, clock: str
) -> SeqSets:
    """Return a patient for each prediction, called 0, 1, …: the given one, as much of whom as there was by then.

    Gone are the stays that begin after the prediction, the events whose clock is not before it, and the ends of stays
    that had not ended.
    """
    first, last = seqsets.subject_offsets[subject_rows], seqsets.subject_offsets[subject_rows + 1]
    sets = expand_ranges(first, last - first)
    example = np.repeat(np.arange(len(subject_rows)), last - first)
    begun = seqsets.start_us[sets] <= predict_at_us[example]
    sets, example = sets[begun], example[begun]
    lengths = np.diff(seqsets.event_offsets)[sets]
    events = expand_ranges(seqsets.event_offsets[:-1][sets], lengths)
    pair = np.repeat(np.arange(len(sets)), lengths)
    limit = predict_at_us[example][pair]
    by_knowledge = clock == "available_at"
    is_visible = seqsets.available_us[events] <= limit if by_knowledge else seqsets.times_us[events] < limit
    events = events[is_visible]
    columns = ("tokens", "kinds", "hours", "times_us", "available_us")
    of_sets = ("encounter_id", "start_us", "days_since_prior", "days_since_first")
    ended = seqsets.end_us[sets] <= predict_at_us[example]
    return replace(
        seqsets,
        subject_id=example,
        end_us=np.where(ended, seqsets.end_us[sets], NO_TIME),
        flags=np.where(ended, seqsets.flags[sets], 0),
        event_offsets=offsets_of(np.bincount(pair[is_visible], minlength=len(sets))),
        subject_offsets=np.searchsorted(example, np.arange(len(subject_rows) + 1)),
        **{name: getattr(seqsets, name)[events] for name in columns},
        **{name: getattr(seqsets, name)[sets] for name in of_sets},
    )


def _changed(seqsets: SeqSets, labels: Labels, part: np.ndarray) -> int:
    subject, encounter = labels.subject_id[part], labels.encounter_id[part]
    predict_at_us, rule = labels.predict_at_us[part], labels.task.features
    rows = np.searchsorted(seqsets.subject_offsets, seqsets.locate(subject, encounter), side="right") - 1
    before = selector.select(seqsets, rule, subject, encounter, predict_at_us)
    past = without_future(seqsets, rows, predict_at_us, rule.clock)
    after = selector.select(past, rule, np.arange(len(part)), encounter, predict_at_us)
    return int(np.count_nonzero(_differs(_seen(seqsets, before), _seen(past, after))))


Seen = tuple[Selection, list[np.ndarray], list[np.ndarray]]


def _seen(seqsets: SeqSets, selection: Selection) -> Seen:
    """Return what every model is made from: columns of the sets, and of the events."""
    sets = [getattr(seqsets, name)[selection.sets] for name in ("days_since_prior", "days_since_first")]
    events = [selection.values(column) for column in (seqsets.tokens, seqsets.kinds, seqsets.hours)]
    return selection, [selection.event_counts, *sets], events


def _differs(one: Seen, other: Seen) -> np.ndarray:
    """Return bool [examples]: which differ in a number of sets or events, or in the bits of one."""
    selections = (one[0], other[0])
    sets = [np.diff(selection.set_offsets) for selection in selections]
    events = [np.diff(selection.event_offsets[selection.set_offsets]) for selection in selections]
    differs: np.ndarray = (sets[0] != sets[1]) | (events[0] != events[1])
    for sizes, columns in ((sets, (one[1], other[1])), (events, (one[2], other[2]))):
        differs |= _any_differs(sizes, columns, ~differs)
    return differs


def _any_differs(
    sizes: list[np.ndarray], columns: tuple[list[np.ndarray], list[np.ndarray]], alike: np.ndarray
) -> np.ndarray:
    """Return bool [examples]: of those alike in size, which differ in a value."""
    starts = [offsets_of(size)[:-1][alike] for size in sizes]
    places = [expand_ranges(start, sizes[0][alike]) for start in starts]
    owner = np.repeat(np.flatnonzero(alike), sizes[0][alike])
    is_unlike = np.zeros(len(alike), dtype=bool)
    for left, right in zip(*columns, strict=True):
        unequal = _bits(left)[places[0]] != _bits(right)[places[1]]
        is_unlike[owner[unequal]] = True
    return is_unlike


def _bits(column: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(column).view(np.dtype(f"u{column.dtype.itemsize}"))


def _events_of(seqsets: SeqSets, labels: Labels) -> np.ndarray:
    """Return how many events the patient of each prediction has."""
    rows = np.searchsorted(
        seqsets.subject_offsets, seqsets.locate(labels.subject_id, labels.encounter_id), side="right"
    )
    bounds = seqsets.event_offsets[seqsets.subject_offsets]
    return bounds[rows] - bounds[rows - 1]


def _affordable(seqsets: SeqSets, labels: Labels, seed: int) -> np.ndarray:
    """Return the predictions looked at, in order: all, or as many as have `MOST_EVENTS` events, drawn."""
    events = _events_of(seqsets, labels)
    if events.sum() <= MOST_EVENTS:
        return np.arange(len(labels))
    order = np.random.default_rng(seed).permutation(len(labels))
    return np.sort(order[np.cumsum(events[order]) <= MOST_EVENTS])
