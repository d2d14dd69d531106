"""Examples of set fine-tuning: prefixes and the baskets after them, and pairs of one scale."""

from dataclasses import replace

import numpy as np
import pytest

from nest_model.next_set.personal import FEATURES, Standardisation
from nest_model.next_set.questions import LearningData
from nest_model.next_set.set_examples import Examples, HistoryPairs, statistics_before_labels
from tests.support.factories.histories import baskets_of, histories_of, no_test_users

SHOP = {3: [[1, 2], [2], [4, 1], [5]], 7: [[3]], 8: [[1], [2, 3]]}


def data_of(shop=SHOP, **fields) -> LearningData:
    training = baskets_of(shop, product_id=range(1, 7))
    return no_test_users(training, **fields)


def test_a_label_follows_the_prefix_before_it():
    examples = Examples.of(data_of(), label_positions=2, most=100)
    baskets = examples.histories.baskets
    assert baskets.subject_id.tolist() == [3, 3, 8]  # the user of one basket has no label
    assert baskets.lengths.tolist() == [3, 2, 1]
    truth = [part.tolist() for part in np.split(examples.truth + 1, examples.truth_offsets[1:-1])]
    assert truth == [[5], [1, 4], [2, 3]]
    assert examples.histories.query_days.tolist() == [21, 14, 7]


def test_a_label_is_expected_when_questions_are():
    data = data_of({1: [[1], [1], [1], [2]]}, query_time="expected")
    days = np.array([0, 2, 6, 100], dtype=np.float32)
    data = replace(data, training=replace(data.training, days=days))
    examples = Examples.of(data, label_positions=1, most=100)
    assert examples.histories.query_days.tolist() == [9]  # 6 and the median of 2 and 4


def test_a_label_changes_neither_its_features_nor_the_statistics():
    other = {user: [*baskets[:-1], [6]] if len(baskets) > 1 else baskets for user, baskets in SHOP.items()}
    pairs = []
    for shop in (SHOP, other):
        examples = Examples.of(data_of(shop), label_positions=1, most=100)
        pairs.append(HistoryPairs.of(examples.histories, statistics_before_labels(data_of(shop), 1)))
    np.testing.assert_array_equal(pairs[0].features, pairs[1].features)


def test_shares_of_purchases_weigh_later_baskets_more():
    histories = histories_of(baskets_of({1: [[1, 2], [1], [3]]}))
    pairs = HistoryPairs.of(histories, statistics_before_labels(data_of(), 1))
    weights = 0.81 + 0.9 + 1
    assert np.exp(pairs.log_share).tolist() == pytest.approx(
        [1.71 / weights, 0.81 / weights, 1 / weights], rel=1e-5
    )
    assert pairs.baskets.tolist() == [3, 3, 3]


def test_other_histories_have_the_scale_of_the_training_rows():
    statistics = statistics_before_labels(data_of(), 1)
    training = HistoryPairs.of(Examples.of(data_of(), label_positions=1, most=9).histories, statistics)
    other = HistoryPairs.of(histories_of(baskets_of({1: [[1]] * 40}, product_id=range(1, 7))), statistics)
    scale = Standardisation.of(training.features)
    count = FEATURES.index("count")
    standard = (40 - training.features[:, count].mean()) / training.features[:, count].std()
    assert other.standardised(scale).features[0, count] == pytest.approx(np.log1p(standard), rel=1e-4)
    assert np.abs(training.standardised(scale).features[:, count].sum()) < len(training.item)


def test_pairs_of_some_users_are_theirs():
    histories = histories_of(baskets_of(SHOP))
    statistics = statistics_before_labels(data_of(), 1)
    training = baskets_of(SHOP, product_id=range(1, 7))
    pairs = HistoryPairs.of(histories_of(training), statistics)
    part = pairs.take(np.array([2, 0]))
    assert part.item[: part.offsets[1]].tolist() == [0, 1, 2]
    assert part.item[part.offsets[1] :].tolist() == [0, 1, 3, 4]
    assert histories.baskets.products == 5
