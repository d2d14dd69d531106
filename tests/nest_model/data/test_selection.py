"""Examples as ranges of events, compared with a naive selection event by event."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest_model.data.selection import (
    Selection,
    before_last_filled_set,
    drop_random_events,
    has_two_filled_sets,
    limit_context,
    whole_subjects,
)
from nest_model.data.seqsets import NO_TYPE, SeqSets, offsets_of
from tests.support.factories.shards import DAY_US, read_rows, set_row

EVENTS = [(7, 0, 5, 6), (7, 3, 8, 9), (1, 2, 8, 8)]
ROWS = [
    set_row(1, 0, 10, 0, EVENTS, end_us=DAY_US),
    set_row(1, 1, 11, 2 * DAY_US),
    set_row(2, 0, 10, DAY_US, EVENTS[:1]),
]


def seqsets_of_sizes(sizes: list[list[int]]) -> SeqSets:
    """Build patients with sets of the given numbers of events; every event has a different token."""
    per_set = np.array([size for subject in sizes for size in subject])
    per_event, per_set_zeros = np.zeros(per_set.sum()), np.zeros(len(per_set))
    sets = dict.fromkeys(
        ("subject_id", "encounter_id", "start_us", "end_us", "days_since_prior", "days_since_first", "flags"),
        per_set_zeros,
    )
    events = dict.fromkeys(("kinds", "hours", "times_us", "available_us"), per_event)
    return SeqSets(
        **sets,
        **events,
        admission_type=np.full(len(per_set), NO_TYPE),
        admission_types=(),
        tokens=np.arange(len(per_event), dtype=np.uint32) + 100,
        event_offsets=offsets_of(per_set),
        subject_offsets=offsets_of(np.array([len(subject) for subject in sizes])),
        vocab_sha256="",
        shard_names=("0.parquet",),
        shard_offsets=(0, len(per_set)),
    )


def naive_limits(
    seqsets: SeqSets, subjects: list[int], *, max_sets: int, max_events: int
) -> list[list[list[int]]]:
    """Return the events of each patient's sets within the limits, by loops."""
    events = []
    for subject in subjects:
        first, end = seqsets.subject_offsets[[subject, subject + 1]].tolist()
        bounds = [seqsets.event_offsets[[index, index + 1]].tolist() for index in range(first, end)]
        events.append([list(range(*pair))[:max_events] for pair in bounds[-max_sets:]])
    return events


def events_by_set(selection: Selection) -> list[list[list[int]]]:
    """Return the events of each example's sets, by the offsets."""
    sets = [part.tolist() for part in np.split(selection.events, selection.event_offsets[1:-1])]
    pairs = selection.set_offsets.tolist()
    return [sets[first:end] for first, end in pairwise(pairs)]


SIZES = st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=5), min_size=1, max_size=6)


@given(SIZES, st.integers(1, 5), st.integers(1, 6), st.data())
def test_selection_by_ranges_equals_selection_by_indices(sizes, max_sets, max_events, data):
    seqsets = seqsets_of_sizes(sizes)
    places = st.integers(0, len(sizes) - 1)
    subjects = data.draw(st.lists(places, min_size=1, max_size=8))
    expected = naive_limits(seqsets, subjects, max_sets=max_sets, max_events=max_events)

    everything = whole_subjects(seqsets, np.array(subjects))
    as_ranges, _ = limit_context(everything, max_sets=max_sets, max_set_rows=max_events + 1)
    as_indices = Selection.of_events(
        as_ranges.first_set, as_ranges.target_set, as_ranges.event_counts, as_ranges.events
    )
    examples = np.array(data.draw(st.lists(st.integers(0, len(subjects) - 1), min_size=1)))

    for selection in (as_ranges, as_indices):
        assert events_by_set(selection) == expected
        subset = selection.take(examples)
        assert events_by_set(subset) == [expected[place] for place in examples]
        assert subset.values(seqsets.tokens).tolist() == [100 + event for event in subset.events]
        assert subset.rows.tolist() == [
            sum(len(events) + 1 for events in expected[place]) for place in examples
        ]


@given(SIZES, st.integers(1, 5), st.integers(1, 6), st.integers(0, 9))
def test_limit_context_works_on_selected_events(sizes, max_sets, max_events, seed):
    everyone = np.arange(len(sizes))
    selection = drop_random_events(
        whole_subjects(seqsets_of_sizes(sizes), everyone), 0.4, np.random.default_rng(seed)
    )

    result, context_cut = limit_context(selection, max_sets=max_sets, max_set_rows=max_events + 1)

    expected = [[events[:max_events] for events in sets[-max_sets:]] for sets in events_by_set(selection)]
    num_kept = sum(len(events) for sets in expected for events in sets)
    lost_share = context_cut.events_in_cut_sets_share + context_cut.events_in_long_sets_share
    assert events_by_set(result) == expected
    assert len(selection.events) * (1 - lost_share) == pytest.approx(num_kept)


@given(SIZES, st.integers(1, 5), st.integers(1, 6), st.integers(2, 20), st.booleans())
def test_limit_context_keeps_the_newest_rows(sizes, max_sets, max_events, max_rows, drops_events):
    selection = whole_subjects(seqsets_of_sizes(sizes), np.arange(len(sizes)))
    if drops_events:
        selection = drop_random_events(selection, 0.4, np.random.default_rng(0))

    result, context_cut = limit_context(
        selection, max_sets=max_sets, max_set_rows=max_events + 1, max_rows=max_rows
    )

    expected = []
    for sets in events_by_set(selection):
        newest, room = [], max_rows
        for events in reversed([events[:max_events] for events in sets[-max_sets:]]):
            if room < 2:
                break
            newest.insert(0, events[max(0, len(events) + 1 - room) :])
            room -= 1 + len(newest[0])
        expected.append(newest)
    assert events_by_set(result) == expected
    assert result.rows.max() <= max_rows
    num_kept = sum(len(events) for sets in expected for events in sets)
    assert len(selection.events) * (1 - context_cut.events_share) == pytest.approx(num_kept)


def test_limit_context_keeps_last_sets_and_first_events(tmp_path):
    seqsets = read_rows(tmp_path, ROWS)
    everything = whole_subjects(seqsets, np.array([0, 1]))

    last_set, context_cut = limit_context(everything, max_sets=1, max_set_rows=512)
    assert last_set.first_set.tolist() == [1, 2]
    assert last_set.events.tolist() == [3]
    assert (context_cut.sets_share, context_cut.events_in_cut_sets_share) == (
        pytest.approx(1 / 3),
        pytest.approx(3 / 4),
    )

    short_sets, context_cut = limit_context(everything, max_sets=8, max_set_rows=3)
    assert short_sets.events.tolist() == [0, 1, 3]
    assert context_cut.events_in_long_sets_share == pytest.approx(1 / 4)


def test_take_keeps_order_and_events(tmp_path):
    everything = whole_subjects(read_rows(tmp_path, ROWS), np.array([0, 1]))
    reversed_examples = everything.take(np.array([1, 0]))

    assert reversed_examples.events.tolist() == [3, 0, 1, 2]
    assert reversed_examples.rows.tolist() == [2, 5]
    assert reversed_examples.sets.tolist() == [2, 0, 1]


def test_event_dropout_drops_events_but_no_set(tmp_path):
    everything = whole_subjects(read_rows(tmp_path, ROWS), np.array([0, 1]))
    whole, half, empty = (
        drop_random_events(everything, share, np.random.default_rng(1)) for share in (0.0, 0.5, 1.0)
    )

    assert whole.events.tolist() == everything.events.tolist()
    assert 0 < len(half.events) < 4
    assert half.event_offsets[-1] == len(half.events)
    assert empty.rows.tolist() == [2, 1]


def test_the_last_filled_set_and_what_follows_it_are_left_out():
    seqsets = seqsets_of_sizes([[2, 1, 3], [2, 0, 1, 0, 0], [0, 4, 0], [0], [1, 0], [1, 1]])

    rows = np.flatnonzero(has_two_filled_sets(seqsets, np.arange(6)))
    selection = before_last_filled_set(seqsets, rows)

    assert rows.tolist() == [0, 1, 5]
    assert [selection.take(np.array([place])).event_counts.tolist() for place in range(3)] == [
        [2, 1],
        [2, 0],
        [1],
    ]
    assert selection.values(seqsets.tokens).tolist() == [100, 101, 102, 106, 107, 114]
