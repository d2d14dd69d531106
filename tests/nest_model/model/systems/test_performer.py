"""Performer: its random features, and that their attention nears dense attention as they grow in number."""

import pytest
import torch
from torch import Tensor

from nest_model.config import ModelConfig
from nest_model.data.packed import offsets
from nest_model.model.attention import plan_attention
from nest_model.model.attention.sdpa import SdpaPlan
from nest_model.model.systems.performer.encoder import (
    FeaturePlan,
    Performer,
    draw_directions,
    num_features,
)

OFFSETS = offsets(torch.tensor([11, 1, 40, 7]))


@pytest.mark.parametrize("preset", ["paper", "matched"])
def test_a_large_model_has_as_many_parameters_as_bert(preset):
    config = ModelConfig.preset(preset, 20_377, system="performer")
    with torch.device("meta"):
        num_weights = sum(weight.numel() for weight in Performer(config).parameters())
    assert Performer.num_parameters(config) == num_weights == 100_603_392


def test_the_blocks_of_a_tiny_model_have_as_many_parameters_as_nests():
    with torch.device("meta"):
        blocks = Performer(ModelConfig.preset("tiny", 20_377, system="performer")).blocks
    assert sum(weight.numel() for block in blocks for weight in block.parameters()) == 213_504


def heads(scale: float, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Return query, key and value, [rows, heads, d_head]; queries and keys are as large as `scale`."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(3, int(OFFSETS[-1]), 2, 8, dtype=dtype, generator=generator)
    rows[:2] *= scale
    return [part.clone().requires_grad_() for part in rows]


def with_gradients(plan, rows: list[Tensor]) -> Tensor:
    """Return the outputs and the gradients of a sum of their squares, in one row."""
    outputs = plan.attend(*rows)
    gradients = torch.autograd.grad(outputs.square().sum(), rows)
    return torch.cat([part.flatten() for part in (outputs.detach(), *gradients)])


def test_attention_and_its_gradients_near_dense_ones_with_the_square_root_of_the_features():
    rows, buckets = heads(1 / 3), SdpaPlan.build(OFFSETS, None, None)
    dense = with_gradients(plan_attention(OFFSETS), rows)
    torch.manual_seed(0)

    def error(features: int) -> float:
        plans = [FeaturePlan(buckets, draw_directions(features, 8)) for _ in range(10)]
        return sum(float((with_gradients(plan, rows) - dense).norm() / dense.norm()) for plan in plans) / 10

    error_16, error_256, error_4096 = error(16), error(256), error(4096)
    assert error_16 > 3 * error_256 > 9 * error_4096  # 4 times each, in the limit
    assert error_4096 < 0.03


def test_large_rows_overflow_nothing():
    plan = FeaturePlan(SdpaPlan.build(OFFSETS, None, None), draw_directions(24, 8))
    assert with_gradients(plan, heads(50, torch.float32)).isfinite().all()


def test_half_precision_is_computed_in_float32():
    plan = FeaturePlan(SdpaPlan.build(OFFSETS, None, None), draw_directions(24, 8))
    halves = [part.detach().bfloat16() for part in heads(2)]
    expected = plan.attend(*(part.float() for part in halves)).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(plan.attend(*halves), expected)


def test_features_are_the_next_multiple_of_eight_from_d_log_d():
    assert [num_features(d_head) for d_head in (2, 8, 32, 64)] == [8, 24, 112, 272]


def test_directions_are_orthogonal_with_normal_lengths():
    torch.manual_seed(0)
    directions = draw_directions(3 * 64 + 10, 64).double()
    assert directions.shape == (202, 64)
    for block in directions.split(64):
        products = block @ block.T
        torch.testing.assert_close(products, products.diagonal().diag(), rtol=0, atol=1e-4)
    assert directions.square().sum(1).mean() == pytest.approx(64, rel=0.05)


def test_directions_are_drawn_with_the_weights_for_each_block_and_saved_with_them():
    def directions(seed: int) -> list[Tensor]:
        torch.manual_seed(seed)
        weights = Performer(ModelConfig.preset("tiny", 19, system="performer")).state_dict()
        return [values for name, values in weights.items() if name.endswith("attention.directions")]

    first, again, other = directions(0), directions(0), directions(1)
    assert [tuple(values.shape) for values in first] == 4 * [(112, 32)]
    assert all(map(torch.equal, first, again))
    assert not any(map(torch.equal, first, other))
    assert not torch.equal(first[0], first[1])
