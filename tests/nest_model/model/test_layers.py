import torch
from hypothesis import given
from hypothesis import strategies as st

from nest_model.model.layers import Time2Vec, rotate, rotation

days = st.floats(-1e4, 1e4, allow_nan=False)


def _score(query: torch.Tensor, key: torch.Tensor, at: float, other: float) -> float:
    turns = rotation(torch.tensor([at, other], dtype=torch.float64), 8, torch.float64)
    return float((rotate(query, turns[:1]) * rotate(key, turns[1:])).sum())


@given(days, days, days)
def test_a_score_depends_on_the_difference_of_two_positions_alone(at, other, shift):
    torch.manual_seed(0)
    query, key = torch.randn(2, 1, 1, 8, dtype=torch.float64)

    assert abs(_score(query, key, at, other) - _score(query, key, at + shift, other + shift)) < 1e-9


def test_position_0_turns_nothing():
    rows = torch.randn(3, 2, 8)

    assert torch.equal(rotate(rows, rotation(torch.zeros(3), 8, torch.float32)), rows)


def test_the_first_pair_turns_a_radian_a_day_and_the_last_the_slowest():
    turn = rotation(torch.tensor([1.0]), 8, torch.float64)[0].angle()

    torch.testing.assert_close(turn, torch.tensor([1, 0.1, 0.01, 0.001], dtype=torch.float64))


def test_angles_of_far_days_are_taken_in_float64_also_for_a_float32_model():
    position = torch.tensor([9_999.123456789], dtype=torch.float64)

    single, double = rotation(position, 8, torch.float32), rotation(position, 8, torch.float64)

    torch.testing.assert_close(single.to(double.dtype), double, rtol=0, atol=1e-7)


def test_time2vec_is_linear_in_its_first_part_and_starts_as_nothing_at_time_0():
    embed = Time2Vec(8, scale=1.0)
    at_0, at_5, at_10 = embed(torch.tensor([0.0, 5.0, 10.0]))

    assert at_0.count_nonzero() == 0
    torch.testing.assert_close(at_10[0], 2 * at_5[0])
    assert at_10[1:].abs().max() <= 1


def test_time2vec_is_multiplied_by_its_scale():
    times = torch.tensor([0.5, 7.0])

    torch.testing.assert_close(Time2Vec(8, scale=0.25)(times), 0.25 * Time2Vec(8, scale=1.0)(times))
