"""The shuffle of earlier sets: contents trade places, the target and every place stay, a patient has one draw."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise, permutations

import numpy as np
import pytest
import torch

from nest_model.config import ModelConfig
from nest_model.data.context import model_context, shuffle_before_target
from nest_model.data.history import leak_count, select
from nest_model.data.packed import pack
from nest_model.data.selection import Selection, limit_context
from nest_model.data.seqsets import SeqSets
from schemas.tables.labels import Features
from tests.support.factories.shards import DAY_US, HOUR_US, read_rows, set_row

SETS = 5
CONFIG = ModelConfig(400, max_sets=4, max_set_rows=3)


def stay(subject: int, index: int) -> dict:
    """Return stay `index` of a patient, which holds `index` + 1 tokens from 100 · subject + 10 · index on."""
    start = (10 * index + index**2) * DAY_US
    events = [
        (100 * subject + 10 * index + k, 0, start + k * HOUR_US, start + k * HOUR_US)
        for k in range(index + 1)
    ]
    return set_row(subject, index, 10 * subject + index, start, events, end_us=start + DAY_US)


@pytest.fixture
def seqsets(tmp_path) -> SeqSets:
    return read_rows(tmp_path, [stay(subject, index) for subject in (1, 2, 3) for index in range(SETS)])


def histories(seqsets: SeqSets, examples: list[tuple[int, int]]) -> Selection:
    """Select the history of (patient, stay) pairs, everything known."""
    subject, index = np.array(examples).T
    return select(seqsets, Features(), subject, 10 * subject + index, np.full(len(examples), 999 * DAY_US))


def stays_shown(seqsets: SeqSets, selection: Selection) -> list[list[int]]:
    """Return the stays that each example's events come from, place by place."""
    tokens = np.split(selection.values(seqsets.tokens), selection.event_offsets[1:-1])
    stays = [int(tokens_of_set[0]) % 100 // 10 for tokens_of_set in tokens]
    ends = selection.set_offsets.tolist()
    return [stays[first:end] for first, end in pairwise(ends)]


def test_the_contents_of_earlier_sets_are_permuted_and_the_target_stays(seqsets):
    selection = histories(seqsets, [(1, 4), (2, 4), (3, 4)])
    orders = []
    for seed in range(20):
        shuffle = shuffle_before_target(seqsets, selection, seed)
        for order in stays_shown(seqsets, shuffle):
            assert sorted(order) == [0, 1, 2, 3, 4]
            assert order[-1] == 4
            orders.append(tuple(order))
        assert shuffle.event_counts.sum() == selection.event_counts.sum()
        assert sorted(shuffle.events) == sorted(selection.events)
    assert len(set(orders)) > 15


def test_every_order_is_as_likely_as_any_other(seqsets):
    selection = histories(seqsets, [(1, 3)])
    orders = Counter(
        tuple(stays_shown(seqsets, shuffle_before_target(seqsets, selection, seed))[0][:3])
        for seed in range(3_000)
    )
    assert set(orders) == set(permutations(range(3)))
    assert max(abs(count - 500) for count in orders.values()) < 5 * np.sqrt(500)


def test_places_keep_their_days_and_gaps_and_events_their_hours(seqsets):
    selection = histories(seqsets, [(1, 4), (2, 2)])
    shuffle = shuffle_before_target(seqsets, selection, 0)
    assert stays_shown(seqsets, shuffle) != stays_shown(seqsets, selection)

    before, after = (pack(seqsets, part, CONFIG) for part in (selection, shuffle))

    assert torch.equal(before.days, after.days)
    assert torch.equal(before.gaps, after.gaps)
    assert torch.equal(before.subject_offsets, after.subject_offsets)
    is_event = after.tokens >= 100
    assert torch.equal(after.hours[is_event].long(), after.tokens[is_event] % 10)


def test_a_patient_has_one_draw_for_all_prediction_times_and_in_any_company(seqsets):
    (full,) = stays_shown(seqsets, shuffle_before_target(seqsets, histories(seqsets, [(2, 4)]), 7))
    pairs = [(3, 4), (2, 3), (1, 1), (2, 4), (2, 2)]
    orders = stays_shown(seqsets, shuffle_before_target(seqsets, histories(seqsets, pairs), 7))
    assert orders[3] == full
    for target, order in ((3, orders[1]), (2, orders[4])):
        assert order == [index for index in full[:-1] if index < target] + [target]


def test_seeds_and_patients_differ(seqsets):
    selection = histories(seqsets, [(1, 4), (2, 4), (3, 4)])
    first, second = (stays_shown(seqsets, shuffle_before_target(seqsets, selection, seed)) for seed in (0, 1))
    assert first != second
    assert len(set(map(tuple, first))) > 1


@pytest.mark.parametrize("target", [0, 1])
def test_a_history_of_one_set_or_none_does_not_change(seqsets, target):
    selection = histories(seqsets, [(1, target)])
    for seed in range(10):
        shuffle = shuffle_before_target(seqsets, selection, seed)
        assert np.array_equal(shuffle.events, selection.events)


def test_the_shuffle_shows_the_events_of_the_models_context_and_no_others(seqsets):
    selection = histories(seqsets, [(1, 4), (2, 3)])
    part, cut = limit_context(selection, max_sets=4, max_set_rows=3)

    shuffle, same_cut = model_context(seqsets, selection, replace(CONFIG, shuffle_seed=3))
    plain, _ = model_context(seqsets, selection, CONFIG)

    assert same_cut == cut
    assert np.array_equal(plain.events, part.events)
    assert not np.array_equal(shuffle.events, part.events)
    assert sorted(shuffle.events) == sorted(part.events)
    assert leak_count(seqsets, shuffle, Features(), np.full(2, 999 * DAY_US)) == 0
