import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nest_model.model.layers import (
    Angles,
    EncoderBlock,
    PostNormBlock,
    Time2Vec,
    initialise,
    rotate,
    rotation,
)
from tests.support.gradients import assert_near, gradients

days = st.floats(-1e4, 1e4, allow_nan=False)


def _score(query: torch.Tensor, key: torch.Tensor, query_position: float, key_position: float) -> float:
    turns = rotation(torch.tensor([query_position, key_position], dtype=torch.float64), 8, torch.float64)
    return float((rotate(query, turns[:1]) * rotate(key, turns[1:])).sum())


@given(days, days, days)
def test_a_score_depends_on_the_difference_of_two_positions_alone(first, second, shift):
    torch.manual_seed(0)
    query, key = torch.randn(2, 1, 1, 8, dtype=torch.float64)

    assert abs(_score(query, key, first, second) - _score(query, key, first + shift, second + shift)) < 1e-9


def test_rotation_of_position_0_is_the_identity():
    rows = torch.randn(3, 2, 8)

    assert torch.equal(rotate(rows, rotation(torch.zeros(3), 8, torch.float32)), rows)


def test_rotation_frequencies_fall_from_a_radian_per_day():
    turn = rotation(torch.tensor([1.0]), 8, torch.float64)[0].angle()

    torch.testing.assert_close(turn, torch.tensor([1, 0.1, 0.01, 0.001], dtype=torch.float64))


def test_rotation_angles_are_float64_for_a_float32_model():
    position = torch.tensor([9_999.123456789], dtype=torch.float64)

    single, double = rotation(position, 8, torch.float32), rotation(position, 8, torch.float64)

    torch.testing.assert_close(single.to(double.dtype), double, rtol=0, atol=1e-7)


def test_time2vec_starts_at_0_and_is_linear_in_the_last_component():
    embed = Time2Vec(8, scale=1.0)
    at_0, at_5, at_10 = embed(torch.tensor([0.0, 5.0, 10.0]))

    assert at_0.count_nonzero() == 0
    torch.testing.assert_close(at_10[-1], 2 * at_5[-1])
    assert at_10[:-1].abs().max() <= 1


def test_a_step_of_the_optimizer_hardly_turns_the_angles_of_times_years_apart():
    """At the frequencies themselves a step of 1e-3 would turn them by 26 radians."""
    angles = Angles(8)
    times = torch.tensor([0.0, 3 * 365 * 24])
    before = angles(times)
    optimizer = torch.optim.AdamW(angles.parameters(), lr=1e-3, weight_decay=0)
    before.sum().backward()
    optimizer.step()

    turn = (angles(times) - before).abs()

    assert 1e-4 < turn[1].min() <= turn.max() < 0.01


def test_time2vec_of_equal_times_is_that_of_each_alone_with_gradients():
    torch.manual_seed(0)
    embed, times = Time2Vec(8, scale=1.0).double(), torch.tensor([7.5, 0.0, 7.5, -3.0, 0.0, 7.5])
    directions = torch.randn(len(times), 8, dtype=torch.float64)
    for weight in embed.parameters():
        torch.nn.init.normal_(weight)

    vectors = embed(times)
    (vectors * directions).sum().backward()
    together = gradients(embed.named_parameters())
    embed.zero_grad()
    alone = torch.cat([embed(time[None]) for time in times])
    (alone * directions).sum().backward()

    torch.testing.assert_close(vectors, alone, rtol=0, atol=1e-12)
    assert_near(together, gradients(embed.named_parameters()), 1e-12)


def test_time2vec_is_multiplied_by_its_scale():
    times = torch.tensor([0.5, 7.0])

    torch.testing.assert_close(Time2Vec(8, scale=0.25)(times), 0.25 * Time2Vec(8, scale=1.0)(times))


@pytest.mark.parametrize("kind", [EncoderBlock, PostNormBlock])
def test_what_is_added_to_the_rows_starts_smaller_the_more_blocks_there_are(kind):
    torch.manual_seed(0)
    blocks = torch.nn.ModuleList(kind(64, 4, 256) for _ in range(8))
    initialise(blocks, list(blocks))
    for block in blocks:
        projection = block.attention.query_key_value
        assert float(projection.weight.std()) == pytest.approx(64**-0.5, rel=0.05)
        for output in block.residual_outputs:
            assert float(output.weight.std()) == pytest.approx(output.in_features**-0.5 / 4, rel=0.05)
        residual = {id(output.weight) for output in block.residual_outputs}
        assert len(residual) == 2
        assert all(output.weight.shape[0] == 64 for output in block.residual_outputs)
