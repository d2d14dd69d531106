"""Nyströmformer: its landmarks, their inverse, and that a landmark for each row gives dense attention."""

import pytest
import torch

from nest_model.config import ModelConfig
from nest_model.data.packed import offsets
from nest_model.model.attention import plan_attention
from nest_model.model.systems.nystromformer.encoder import LandmarkPlan, Nystromformer, pseudo_inverse


@pytest.mark.parametrize("preset", ["paper", "matched"])
def test_a_large_model_has_as_many_parameters_as_bert(preset):
    config = ModelConfig.preset(preset, 20_377, system="nystromformer")
    with torch.device("meta"):
        num_weights = sum(weight.numel() for weight in Nystromformer(config).parameters())
    assert Nystromformer.num_parameters(config) == num_weights == 100_603_392


def test_the_blocks_of_a_tiny_model_have_as_many_parameters_as_nests():
    with torch.device("meta"):
        blocks = Nystromformer(ModelConfig.preset("tiny", 20_377, system="nystromformer")).blocks
    assert sum(weight.numel() for block in blocks for weight in block.parameters()) == 213_504


def test_landmarks_are_means_of_near_equal_runs():
    plan = LandmarkPlan.build(torch.tensor([0, 10, 13]), landmarks=4)
    assert plan.landmark_of_row.tolist() == [0, 0, 1, 1, 1, 2, 2, 3, 3, 3, 4, 5, 6]
    assert plan.rows_of_landmark.tolist() == [2, 3, 2, 3, 1, 1, 1]


@pytest.mark.parametrize("query_places", [range(59), [0, 20, 58]])
def test_a_landmark_for_each_row_gives_dense_attention_with_gradients(query_places):
    piece_offsets = offsets(torch.tensor([11, 1, 40, 7]))
    generator = torch.Generator().manual_seed(0)
    query, _, value = torch.randn(3, 59, 2, 8, dtype=torch.float64, generator=generator).unbind(0)
    # each row attends to itself most: the matrices are far from singular
    rows = [part.clone().requires_grad_() for part in (query, 4 * query, value)]
    query_rows = torch.tensor(query_places)
    is_query = torch.isin(torch.arange(59), query_rows)

    plan = LandmarkPlan.build(piece_offsets, is_query=is_query, landmarks=40, iterations=30)
    actual = plan.attend(*rows)
    dense = plan_attention(piece_offsets, is_query=is_query)
    expected = dense.attend(rows[0].index_select(0, query_rows), *rows[1:])

    weight = torch.randn(expected.shape, dtype=torch.float64, generator=generator)
    gradients, expected_gradients = (
        torch.autograd.grad((outputs * weight).sum(), rows) for outputs in (actual, expected)
    )
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(gradients, expected_gradients, rtol=0, atol=1e-8)


def test_the_inverse_converges_and_leaves_zeros_around_a_matrix_alone():
    torch.manual_seed(0)
    matrix = torch.randn(3, 12, 12, dtype=torch.float64).add(4 * torch.eye(12)).softmax(-1)
    with_margin = torch.zeros(3, 15, 15, dtype=torch.float64)
    with_margin[:, :12, :12] = matrix
    expected = torch.linalg.pinv(matrix)

    torch.testing.assert_close(pseudo_inverse(matrix, 30), expected, rtol=0, atol=1e-10)
    after_six, of_padded = pseudo_inverse(matrix, 6), pseudo_inverse(with_margin, 6)
    assert float((after_six - expected).norm() / expected.norm()) < 0.5
    torch.testing.assert_close(of_padded[:, :12, :12], after_six, rtol=0, atol=1e-12)
    assert not of_padded[:, 12:].any()
    assert not of_padded[:, :, 12:].any()


def test_half_precision_is_computed_in_float32():
    plan = LandmarkPlan.build(torch.tensor([0, 100, 130]))
    torch.manual_seed(0)
    halves = torch.randn(3, 130, 2, 8).bfloat16().unbind(0)
    expected = plan.attend(*(part.float() for part in halves)).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(plan.attend(*halves), expected)
