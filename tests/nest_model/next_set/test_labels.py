"""Label baskets: what precedes them, the day they are asked for, and a sample that depends on ids alone."""

import numpy as np
import pytest

from nest_model.next_set.labels import histories_before, label_blocks, label_questions, lowest_hashes
from tests.support.factories.histories import baskets_of, no_test_users


def test_history_holds_the_baskets_before_the_label():
    baskets = baskets_of({1: [[1], [2], [3]], 2: [[2], [1]]})
    histories = histories_before(no_test_users(baskets), baskets, np.array([0, 1]), np.array([2, 1]))
    assert histories.baskets.product_id[histories.baskets.items].tolist() == [1, 2, 2]
    assert histories.query_days.tolist() == [14, 7]


@pytest.mark.parametrize(("query_time", "day"), [("given", 30), ("expected", 4 + 2)])
def test_label_s_day_comes_from_where_the_questions_days_come(query_time: str, day: int):
    baskets = baskets_of({1: [[1], [1], [1], [1]]}, days={1: [0, 2, 4, 30]})
    data = no_test_users(baskets, query_time=query_time)
    histories = histories_before(data, baskets, np.array([0]), np.array([3]))
    assert histories.query_days.tolist() == [day]


def test_usual_gap_stands_for_a_user_of_one_basket_in_any_company():
    training = baskets_of({1: [[1], [1], [1]]}, days={1: [0, 3, 8]})
    data = no_test_users(training, query_time="expected")
    one = baskets_of({7: [[1]]})
    many = baskets_of({7: [[1]], 8: [[1], [1]]}, days={8: [0, 100]})
    assert data.expected_days(one).tolist() == [3]
    assert data.expected_days(many).tolist() == [3, 200]


def test_usual_gap_is_of_baskets_before_the_labels():
    days = [[0, 3, 8], [0, 3, 900]]
    usual, with_late_label = (
        no_test_users(baskets_of({1: [[1], [1], [1]]}, days={1: each}), query_time="expected").usual_gap_days
        for each in days
    )
    assert usual == with_late_label == 3


def test_question_of_a_label_is_answered_by_its_products():
    baskets = baskets_of({3: [[1, 2], [2], [4, 1], [5]], 7: [[3]], 8: [[1], [2, 3]]})
    questions = [
        label_questions(no_test_users(baskets), users, positions)
        for users, positions in label_blocks(baskets, 2)
    ]
    assert [each.subject_id.tolist() for each in questions] == [
        [3, 8],
        [3],
    ]  # of one basket there is no label
    assert [each.truth.tolist() for each in questions] == [[5, 2, 3], [1, 4]]
    assert [each.histories.baskets.lengths.tolist() for each in questions] == [[3, 1], [2]]


def test_sample_depends_on_the_ids_alone_and_keeps_everybody_s_counts():
    everybody = baskets_of({user: [[1]] for user in range(1, 101)})
    data, half = no_test_users(everybody), no_test_users(everybody.take(np.arange(0, 100, 2)))
    sample = lowest_hashes(data, 20)
    assert len(sample.training) == 20
    assert (np.diff(sample.training.subject_id) > 0).all()
    of_half = {*half.training.subject_id}
    assert {*sample.training.subject_id} & of_half <= {*lowest_hashes(half, 20).training.subject_id}
    assert sample.popularity().tolist() == data.popularity().tolist() == [100]
    assert data.sample(20, seed=1).popularity().tolist() == [100]
    assert data.sample(100, seed=1) is data
