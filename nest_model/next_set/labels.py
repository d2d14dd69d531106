"""Label baskets of training users with the history before each: what systems that learn learn from.

A history is cut before its label, never read off a longer one, and its query day comes from where a question's does.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from nest_model.data.seqsets import expand_ranges, offsets_of
from nest_model.next_set.baskets import Baskets
from nest_model.next_set.questions import Histories, LearningData, Questions

_SHIFT = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: consecutive ids fall far apart


def label_blocks(baskets: Baskets, label_positions: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the users whose last basket is a label and its position, then those of the last but one, ….

    A user's first basket, which nothing precedes, is no label.
    """
    for back in range(min(label_positions, int(baskets.lengths.max(initial=1)) - 1)):
        positions = baskets.lengths - 1 - back
        users = np.flatnonzero(positions >= 1)
        yield users, positions[users]


def histories_before(
    data: LearningData, baskets: Baskets, users: np.ndarray, positions: np.ndarray
) -> Histories:
    """Return these users' histories before the baskets at these positions, with the days those are asked for.

    Args:
        baskets: the training users', or whatever else is learnt from.
        users: i64 [labels], places among the users; a user can be there several times.
        positions: i64 [labels], each at least 1: how many baskets come before the label.
    """
    before = baskets.take(users).first(positions)
    if data.query_time == "expected":
        return Histories(before, data.expected_days(before))
    return Histories(before, baskets.days[baskets.basket_offsets[users] + positions])


def label_questions(data: LearningData, users: np.ndarray, positions: np.ndarray) -> Questions:
    """Return the training users' baskets at these positions as questions; see `histories_before`."""
    training = data.training
    label = training.basket_offsets[users] + positions
    sizes = training.sizes[label]
    items = training.items[expand_ranges(training.item_offsets[label], sizes)]
    histories = histories_before(data, training, users, positions)
    return Questions(histories, offsets_of(sizes), training.product_id[items], {})


def lowest_hashes(data: LearningData, users: int) -> LearningData:
    """Return the same with at most so many training users, those of the lowest hash of their ids."""
    training = data.training
    if len(training) <= users:
        return data
    hashes = training.subject_id.astype(np.uint64) * _SHIFT
    places = np.sort(np.argsort(hashes, kind="stable")[:users])
    return replace(data, training=training.take(places), all_training=data.everybody)
