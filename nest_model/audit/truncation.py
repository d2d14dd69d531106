"""Check on the cohort itself that a prediction's input is the same when everything after it is removed.

The check compares the selector's output and does not depend on how it works: each prediction gets a copy of its
patient without later stays and later events.
"""

from dataclasses import replace

import numpy as np

from nest_model.data import history as selector
from nest_model.data.labels import Labels
from nest_model.data.selection import Selection
from nest_model.data.seqsets import NO_TIME, SeqSets, expand_ranges, offsets_of

EVENTS_AT_A_TIME = 4_000_000
MOST_EVENTS = 20_000_000
"""Most event copies that are compared; if the predictions have more, a random sample is checked."""


def count_changed(seqsets: SeqSets, labels: Labels, *, seed: int) -> tuple[int, int]:
    """Return how many predictions change without the future, and how many were checked."""
    sample, num_changed = _sample(seqsets, labels, seed), 0
    sizes = np.cumsum(_events_of(seqsets, labels)[sample]) // EVENTS_AT_A_TIME
    for part in np.split(sample, np.flatnonzero(np.diff(sizes)) + 1):
        num_changed += _count_differing(seqsets, labels, part)
    return num_changed, len(sample)


def without_future(
    seqsets: SeqSets, subject_rows: np.ndarray, predict_at_us: np.ndarray, clock: str
) -> SeqSets:
    """Return one patient per prediction, numbered 0, 1, …: a copy of its patient up to the prediction time.

    Removed are the stays that begin after the prediction, the events whose clock is not before it, and the end times of
    stays that had not ended.
    """
    first, last = seqsets.subject_offsets[subject_rows], seqsets.subject_offsets[subject_rows + 1]
    sets = expand_ranges(first, last - first)
    example = np.repeat(np.arange(len(subject_rows)), last - first)
    has_begun = seqsets.start_us[sets] <= predict_at_us[example]
    sets, example = sets[has_begun], example[has_begun]
    lengths = np.diff(seqsets.event_offsets)[sets]
    events = expand_ranges(seqsets.event_offsets[:-1][sets], lengths)
    pair = np.repeat(np.arange(len(sets)), lengths)
    limit = predict_at_us[example][pair]
    by_knowledge = clock == "available_at"
    is_visible = seqsets.available_us[events] <= limit if by_knowledge else seqsets.times_us[events] < limit
    events = events[is_visible]
    columns = ("tokens", "kinds", "hours", "times_us", "available_us")
    of_sets = ("encounter_id", "start_us", "days_since_prior", "days_since_first")
    has_ended = seqsets.end_us[sets] <= predict_at_us[example]
    return replace(
        seqsets,
        subject_id=example,
        end_us=np.where(has_ended, seqsets.end_us[sets], NO_TIME),
        flags=np.where(has_ended, seqsets.flags[sets], 0),
        event_offsets=offsets_of(np.bincount(pair[is_visible], minlength=len(sets))),
        subject_offsets=np.searchsorted(example, np.arange(len(subject_rows) + 1)),
        **{name: getattr(seqsets, name)[events] for name in columns},
        **{name: getattr(seqsets, name)[sets] for name in of_sets},
    )


def _count_differing(seqsets: SeqSets, labels: Labels, part: np.ndarray) -> int:
    subject, encounter = labels.subject_id[part], labels.encounter_id[part]
    predict_at_us, rule = labels.predict_at_us[part], labels.task.features
    rows = np.searchsorted(seqsets.subject_offsets, seqsets.locate(subject, encounter), side="right") - 1
    full_selection = selector.select(seqsets, rule, subject, encounter, predict_at_us)
    past = without_future(seqsets, rows, predict_at_us, rule.clock)
    past_selection = selector.select(past, rule, np.arange(len(part)), encounter, predict_at_us)
    return int(
        np.count_nonzero(_differs(_model_input(seqsets, full_selection), _model_input(past, past_selection)))
    )


ModelInput = tuple[Selection, list[np.ndarray], list[np.ndarray]]


def _model_input(seqsets: SeqSets, selection: Selection) -> ModelInput:
    """Return the input of every model: the selection, and columns of its sets and of its events."""
    sets = [getattr(seqsets, name)[selection.sets] for name in ("days_since_prior", "days_since_first")]
    events = [selection.values(column) for column in (seqsets.tokens, seqsets.kinds, seqsets.hours)]
    return selection, [selection.event_counts, *sets], events


def _differs(left: ModelInput, right: ModelInput) -> np.ndarray:
    """Return bool [examples]: whether the number of sets or events differs, or the bits of any of them."""
    selections = (left[0], right[0])
    sets = [np.diff(selection.set_offsets) for selection in selections]
    events = [np.diff(selection.event_offsets[selection.set_offsets]) for selection in selections]
    differs: np.ndarray = (sets[0] != sets[1]) | (events[0] != events[1])
    for sizes, columns in ((sets, (left[1], right[1])), (events, (left[2], right[2]))):
        differs |= _any_differs(sizes, columns, ~differs)
    return differs


def _any_differs(
    sizes: list[np.ndarray], columns: tuple[list[np.ndarray], list[np.ndarray]], is_same_size: np.ndarray
) -> np.ndarray:
    """Return bool [examples]: whether an example of the same size on both sides differs in a value."""
    starts = [offsets_of(size)[:-1][is_same_size] for size in sizes]
    places = [expand_ranges(start, sizes[0][is_same_size]) for start in starts]
    owner = np.repeat(np.flatnonzero(is_same_size), sizes[0][is_same_size])
    differs = np.zeros(len(is_same_size), dtype=bool)
    for left_column, right_column in zip(*columns, strict=True):
        unequal = _bits(left_column)[places[0]] != _bits(right_column)[places[1]]
        differs[owner[unequal]] = True
    return differs


def _bits(column: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(column).view(np.dtype(f"u{column.dtype.itemsize}"))


def _events_of(seqsets: SeqSets, labels: Labels) -> np.ndarray:
    """Return the number of events of each prediction's patient."""
    rows = np.searchsorted(
        seqsets.subject_offsets, seqsets.locate(labels.subject_id, labels.encounter_id), side="right"
    )
    bounds = seqsets.event_offsets[seqsets.subject_offsets]
    counts: np.ndarray = bounds[rows] - bounds[rows - 1]
    return counts


def _sample(seqsets: SeqSets, labels: Labels, seed: int) -> np.ndarray:
    """Return the predictions to check, in order: all, or a random sample with at most `MOST_EVENTS` events."""
    events = _events_of(seqsets, labels)
    if events.sum() <= MOST_EVENTS:
        return np.arange(len(labels))
    order = np.random.default_rng(seed).permutation(len(labels))
    return np.sort(order[np.cumsum(events[order]) <= MOST_EVENTS])
