"""Examples as ranges of events, held against the same said slowly, event by event."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest_model.data.selection import Selection, drop_random_events, limit_context, whole_subjects
from nest_model.data.seqsets import SeqSets, offsets_of
from tests.support.factories.shards import DAY_US, read_rows, set_row

EVENTS = [(7, 0, 5, 6), (7, 3, 8, 9), (1, 2, 8, 8)]
ROWS = [
    set_row(1, 0, 10, 0, EVENTS, end_us=DAY_US),
    set_row(1, 1, 11, 2 * DAY_US),
    set_row(2, 0, 10, DAY_US, EVENTS[:1]),
]


def made_of(sizes: list[list[int]]) -> SeqSets:
    """Sets of so many events for each subject; every event's token is a number of its own."""
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
        tokens=np.arange(len(per_event), dtype=np.uint32) + 100,
        event_offsets=offsets_of(per_set),
        subject_offsets=offsets_of(np.array([len(subject) for subject in sizes])),
        vocab_sha256="",
        shard_names=("0.parquet",),
        shard_offsets=(0, len(per_set)),
    )


def said_slowly(
    seqsets: SeqSets, subjects: list[int], *, max_sets: int, max_events: int
) -> list[list[list[int]]]:
    """The events of each set of each subject within the limits."""
    found = []
    for subject in subjects:
        first, end = seqsets.subject_offsets[[subject, subject + 1]].tolist()
        bounds = [seqsets.event_offsets[[one, one + 1]].tolist() for one in range(first, end)]
        found.append([list(range(*pair))[:max_events] for pair in bounds[-max_sets:]])
    return found


def told(selection: Selection) -> list[list[list[int]]]:
    """The events of each set of each example, by its offsets."""
    sets = [part.tolist() for part in np.split(selection.events, selection.event_offsets[1:-1])]
    pairs = selection.set_offsets.tolist()
    return [sets[first:end] for first, end in pairwise(pairs)]


SIZES = st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=5), min_size=1, max_size=6)


@given(SIZES, st.integers(1, 5), st.integers(1, 6), st.data())
def test_ranges_hold_the_very_events_that_indices_would(sizes, max_sets, max_events, data):
    seqsets = made_of(sizes)
    places = st.integers(0, len(sizes) - 1)
    subjects = data.draw(st.lists(places, min_size=1, max_size=8))
    slowly = said_slowly(seqsets, subjects, max_sets=max_sets, max_events=max_events)

    chosen = whole_subjects(seqsets, np.array(subjects))
    limited, _ = limit_context(chosen, max_sets=max_sets, max_set_rows=max_events + 1)
    as_indices = Selection.of_events(
        limited.first_set, limited.target_set, limited.event_counts, limited.events
    )
    picked = np.array(data.draw(st.lists(st.integers(0, len(subjects) - 1), min_size=1)))

    for selection in (limited, as_indices):
        assert told(selection) == slowly
        taken = selection.take(picked)
        assert told(taken) == [slowly[place] for place in picked]
        assert taken.values(seqsets.tokens).tolist() == [100 + event for event in taken.events]
        assert taken.rows.tolist() == [sum(len(one) + 1 for one in slowly[place]) for place in picked]


@given(SIZES, st.integers(1, 5), st.integers(1, 6), st.integers(0, 9))
def test_limits_keep_the_same_of_events_chosen_one_by_one(sizes, max_sets, max_events, seed):
    everyone = np.arange(len(sizes))
    thinned = drop_random_events(whole_subjects(made_of(sizes), everyone), 0.4, np.random.default_rng(seed))

    limited, cut = limit_context(thinned, max_sets=max_sets, max_set_rows=max_events + 1)

    slowly = [[events[:max_events] for events in sets[-max_sets:]] for sets in told(thinned)]
    kept = sum(len(events) for sets in slowly for events in sets)
    lost = cut.events_in_cut_sets_share + cut.events_in_long_sets_share
    assert told(limited) == slowly
    assert len(thinned.events) * (1 - lost) == pytest.approx(kept)


def test_the_context_keeps_the_last_sets_and_the_first_events_and_says_what_it_cut(tmp_path):
    seqsets = read_rows(tmp_path, ROWS)
    everything = whole_subjects(seqsets, np.array([0, 1]))

    last_set, cut = limit_context(everything, max_sets=1, max_set_rows=512)
    assert last_set.first_set.tolist() == [1, 2]
    assert last_set.events.tolist() == [3]
    assert (cut.sets_share, cut.events_in_cut_sets_share) == (pytest.approx(1 / 3), pytest.approx(3 / 4))

    short_sets, cut = limit_context(everything, max_sets=8, max_set_rows=3)
    assert short_sets.events.tolist() == [0, 1, 3]
    assert cut.events_in_long_sets_share == pytest.approx(1 / 4)


def test_taking_examples_keeps_their_order_and_events(tmp_path):
    everything = whole_subjects(read_rows(tmp_path, ROWS), np.array([0, 1]))
    turned = everything.take(np.array([1, 0]))

    assert turned.events.tolist() == [3, 0, 1, 2]
    assert turned.rows.tolist() == [2, 5]
    assert turned.sets.tolist() == [2, 0, 1]


def test_thinning_leaves_out_events_and_never_a_set(tmp_path):
    everything = whole_subjects(read_rows(tmp_path, ROWS), np.array([0, 1]))
    none, some, all_ = (
        drop_random_events(everything, share, np.random.default_rng(1)) for share in (0.0, 0.5, 1.0)
    )

    assert none.events.tolist() == everything.events.tolist()
    assert 0 < len(some.events) < 4
    assert some.event_offsets[-1] == len(some.events)
    assert all_.rows.tolist() == [2, 1]
