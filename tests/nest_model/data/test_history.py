from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nest_model.data import history as features_module
from nest_model.data.history import leak_count, select
from nest_model.data.selection import Selection
from schemas.errors import InputError
from schemas.tables.events import KINDS
from schemas.tables.labels import Features
from tests.support.examples import examples
from tests.support.factories.shards import DAY_US, HOUR_US, read_rows, set_row

DX, PR, MED, LAB = (KINDS.index(kind) for kind in ("DX", "PR", "MED", "LAB"))
T = 10 * DAY_US + 24 * HOUR_US  # a day into the second stay

ROWS = [
    set_row(1, 0, 10, 0, [(20, DX, 0, DAY_US), (30, LAB, HOUR_US, 12 * DAY_US)], end_us=DAY_US),
    set_row(
        1,
        1,
        11,
        10 * DAY_US,
        [
            (21, DX, 10 * DAY_US, 10 * DAY_US),
            (1, DX, 10 * DAY_US, 10 * DAY_US),
            (31, LAB, T - 1, T),
            (32, LAB, T - 1, T + 1),
            (40, MED, T, T),
        ],
    ),
    set_row(1, 2, 12, 30 * DAY_US, [(33, LAB, 30 * DAY_US, 30 * DAY_US)]),
]


def select_tokens(tmp_path, features, *, predict_at_us=T, encounter=11):
    seqsets = read_rows(tmp_path, ROWS)
    selection = select(seqsets, features, np.array([1]), np.array([encounter]), np.array([predict_at_us]))
    return [seqsets.tokens[selection.events].tolist(), selection.first_set[0], selection.target_set[0]]


def test_select_keeps_events_available_at_the_prediction(tmp_path):
    assert select_tokens(tmp_path, Features()) == [[20, 21, 1, 31, 40], 0, 1]


def test_select_by_event_time_is_strict(tmp_path):
    assert select_tokens(tmp_path, Features(clock="time")) == [[20, 30, 21, 1, 31, 32], 0, 1]


def test_select_drops_a_kind_from_the_index_set_with_unknown_tokens(tmp_path):
    assert select_tokens(tmp_path, Features(drop_from_index=("DX",)))[0] == [20, 31, 40]


def test_select_drops_a_kind_from_the_whole_history(tmp_path):
    assert select_tokens(tmp_path, Features(drop_types=("DX",)))[0] == [31, 40]


def test_since_drops_older_events_and_leading_empty_sets(tmp_path):
    assert select_tokens(tmp_path, Features(since_us=DAY_US)) == [[31, 40], 1, 1]
    assert select_tokens(tmp_path, Features(since_us=10 * DAY_US)) == [
        [21, 1, 31, 40],
        1,
        1,
    ]  # open at its start
    assert select_tokens(tmp_path, Features(since_us=10 * DAY_US + 1)) == [[20, 21, 1, 31, 40], 0, 1]


def test_since_counts_calendar_months_and_from_the_index_start(tmp_path):
    month = Features(since_us=0, since_months=1)  # 11 January less a month is 11 December
    assert select_tokens(tmp_path, month)[0] == [20, 21, 1, 31, 40]
    stay = Features(since_us=0, since_anchor="index.start")
    assert select_tokens(tmp_path, stay) == [[31, 40], 1, 1]  # open at its start, as every window
    hour_before = Features(since_us=HOUR_US, since_anchor="index.start")
    assert select_tokens(tmp_path, hour_before) == [[21, 1, 31, 40], 1, 1]
    assert select_tokens(tmp_path, Features(since_us=-DAY_US, since_anchor="index.start"))[0] == []


def test_select_keeps_an_empty_index_set(tmp_path):
    drop = Features(drop_types=("DX", "LAB", "MED"))

    assert select_tokens(tmp_path, drop, predict_at_us=10 * DAY_US) == [[], 0, 1]


def test_select_refuses_a_prediction_before_its_encounter(tmp_path):
    with pytest.raises(InputError, match="1 of 1 predictions"):
        select_tokens(tmp_path, Features(), predict_at_us=T - 2 * DAY_US)


def test_select_in_chunks_gives_the_same_selection(tmp_path):
    seqsets = read_rows(tmp_path, ROWS)
    examples = (np.array([1, 1, 1]), np.array([12, 10, 11]), np.array([31, 3, 12]) * DAY_US)
    whole = select(seqsets, Features(since_us=25 * DAY_US), *examples)
    with mock.patch.object(features_module, "_EVENTS_PER_CHUNK", 1):
        parts = select(seqsets, Features(since_us=25 * DAY_US), *examples)

    for name in ("first_set", "target_set", "event_offsets", "events"):
        assert getattr(whole, name).tolist() == getattr(parts, name).tolist()


@pytest.mark.parametrize(("clock", "late"), [("available_at", 5), ("time", 6)])
def test_leak_count_finds_a_forbidden_event(tmp_path, clock, late):
    seqsets = read_rows(tmp_path, ROWS)
    features = Features(clock=clock, drop_from_index=("DX",))
    good = select(seqsets, features, np.array([1]), np.array([11]), np.array([T]))

    assert leak_count(seqsets, good, features, np.array([T])) == 0
    diagnosis_of_index, next_stay = 2, 7
    for event in (late, diagnosis_of_index, next_stay):
        bad = Selection.of_events(good.first_set, good.target_set, np.array([1, 2]), np.array([0, 4, event]))
        assert leak_count(seqsets, bad, features, np.array([T])) == 1


@pytest.mark.parametrize("kind", [DX, PR])
def test_leak_count_finds_an_icd_code_of_an_unfinished_stay(tmp_path, kind):
    events = [(50, kind, T - HOUR_US, T - HOUR_US)]
    for number, (end_us, leaks) in enumerate([(T + 1, 1), (None, 1), (T, 0)]):
        rows = [set_row(1, 0, 10, 0, events, end_us=DAY_US), set_row(1, 1, 11, T - DAY_US, events, end_us)]
        seqsets = read_rows(tmp_path / str(number), rows)
        for features, expected in ((Features(), leaks), (Features(clock="time"), 0)):
            selection = select(seqsets, features, np.array([1]), np.array([11]), np.array([T]))
            assert seqsets.tokens[selection.events].tolist() == [50, 50]
            assert leak_count(seqsets, selection, features, np.array([T])) == expected


MOMENT = st.integers(0, 4 * DAY_US)
EVENT = st.tuples(st.integers(5, 50), st.sampled_from([DX, PR, MED, LAB]), MOMENT, MOMENT)


@settings(max_examples=examples(60), deadline=None)
@given(
    history=st.lists(EVENT, max_size=6),
    index=st.lists(EVENT, max_size=6),
    noise=st.lists(EVENT, min_size=1, max_size=6),
    offset_us=st.integers(0, 4 * DAY_US),
    clock=st.sampled_from(["available_at", "time"]),
)
def test_select_ignores_noise_after_the_prediction(tmp_path_factory, history, index, noise, offset_us, clock):
    """Adding events after T to every set, and a later stay, must not change the selection."""
    start = 2 * DAY_US
    predict_at = start + offset_us
    features = Features(clock=clock, drop_from_index=("DX",))

    def is_known(event):
        return event[3] <= predict_at if clock == "available_at" else event[2] < predict_at

    later = [
        (token, kind, time + predict_at, available + predict_at + 1) for token, kind, time, available in noise
    ]

    def features_of(history_events, index_events, later_rows):
        rows = [
            set_row(1, 0, 10, 0, history_events),
            set_row(1, 1, 11, start, index_events, end_us=start),
            *later_rows,
        ]
        seqsets = read_rows(tmp_path_factory.mktemp("shards"), rows)
        selection = select(seqsets, features, np.array([1]), np.array([11]), np.array([predict_at]))
        assert leak_count(seqsets, selection, features, np.array([predict_at])) == 0
        columns = (seqsets.tokens, seqsets.kinds, seqsets.hours, seqsets.times_us, seqsets.available_us)
        flat = b"".join(column[selection.events].tobytes() for column in columns)
        days = seqsets.days_since_first[selection.sets].tobytes()
        return flat + selection.event_counts.tobytes() + days

    clean = features_of([e for e in history if is_known(e)], [e for e in index if is_known(e)], [])
    noisy = features_of(
        [*history, *later], [*later, *index], [set_row(1, 2, 12, start + offset_us + DAY_US, later)]
    )
    assert clean == noisy


def test_select_compares_exact_microseconds(tmp_path):
    far = 200 * 365 * DAY_US
    rows = [set_row(1, 0, 10, far, [(20, LAB, far, far + HOUR_US), (21, LAB, far, far + HOUR_US + 1)])]
    seqsets = read_rows(tmp_path, rows)
    selection = select(seqsets, Features(), np.array([1]), np.array([10]), np.array([far + HOUR_US]))

    assert seqsets.tokens[selection.events].tolist() == [20]
