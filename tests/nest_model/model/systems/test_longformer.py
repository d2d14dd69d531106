"""Longformer: which rows attend to which, and that nothing is lost when all do."""

import pytest
import torch
from torch import Tensor

from nest_model.config import ModelConfig
from nest_model.data.packed import offsets
from nest_model.model.attention import plan_attention
from nest_model.model.flat import numbers_within
from nest_model.model.layers import Attention, rotation
from nest_model.model.systems.longformer.encoder import Longformer, LongformerAttention, LongformerPlan

LENGTHS = [11, 1, 40, 7]
OFFSETS = offsets(torch.tensor(LENGTHS))
ANCHORS = torch.tensor([0, 4, 11, 12, 13, 30, 52])
EXACT = {"rtol": 0, "atol": 1e-12}


@pytest.mark.parametrize(
    ("preset", "parameters"),
    [("paper", 121_837_056), ("matched", 100_603_392), ("matched_flops", 58_126_848)],
)
def test_anchors_have_projections_of_their_own_or_the_feed_forward_is_narrower(preset, parameters):
    config = ModelConfig.preset(preset, 20_377, system="longformer")
    with torch.device("meta"):
        num_weights = sum(weight.numel() for weight in Longformer(config).parameters())
    assert Longformer.num_parameters(config) == num_weights == parameters


@pytest.mark.parametrize(("preset", "parameters"), [("tiny", 213_504), ("small", 6_819_840)])
def test_the_blocks_have_as_many_parameters_as_berts(preset, parameters):
    with torch.device("meta"):
        blocks = Longformer(ModelConfig.preset(preset, 20_377, system="longformer")).blocks
    assert sum(weight.numel() for block in blocks for weight in block.parameters()) == parameters


def heads(seed: int = 0) -> tuple[Tensor, ...]:
    """Return query, key and value, [rows, heads, d_head]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(3, sum(LENGTHS), 2, 4, dtype=torch.float64, generator=generator).unbind(0)


@pytest.mark.parametrize("window", [1, 3, 7, 64])
def test_a_row_attends_to_its_window_and_to_the_anchors_of_its_piece_each_once(window):
    plan, (query, key, _) = LongformerPlan.build(OFFSETS, anchors=ANCHORS, window=window), heads()
    rows = torch.arange(len(query))
    piece = torch.repeat_interleave(OFFSETS.diff())
    is_seen = ((rows[:, None] - rows).abs() <= window) | torch.isin(rows, ANCHORS)
    is_seen &= piece[:, None] == piece
    scores = torch.einsum("qhd,khd->hqk", query, key) / 2
    expected = scores.masked_fill(~is_seen, -torch.inf).softmax(-1)[:, plan.near_queries]

    own_values = (
        torch.eye(len(rows)).double()[:, None].expand(-1, 2, -1)
    )  # so that the outputs are the weights
    weights = plan.near.attend(query[plan.near_queries], key, own_values)

    torch.testing.assert_close(weights.transpose(0, 1), expected, **EXACT)
    assert torch.equal(plan.near_queries, rows[~torch.isin(rows, ANCHORS)])


@pytest.mark.parametrize("query_places", [range(59), [3, 20, 58], [0, 12, 30, 31], [11, 52]])
def test_tied_anchors_in_a_window_of_all_rows_equal_dense_attention_with_gradients(query_places):
    torch.manual_seed(0)
    ours, dense = LongformerAttention(16, 2).double(), Attention(16, 2).double()
    ours.load_state_dict(dense.state_dict(), strict=False)
    with torch.no_grad():
        ours.anchor_query_key_value.weight.copy_(dense.query_key_value.weight)
    rows = torch.randn(sum(LENGTHS), 16, dtype=torch.float64, requires_grad=True)
    query_rows = torch.tensor(query_places)
    is_query = torch.isin(torch.arange(len(rows)), query_rows)
    positions = rotation(numbers_within(OFFSETS), 8, torch.float64)
    weight = torch.randn(len(query_rows), 16, dtype=torch.float64)

    plan = LongformerPlan.build(OFFSETS, anchors=ANCHORS, window=max(LENGTHS), is_query=is_query)
    actual = ours(rows, plan, positions, query_rows)
    expected = dense(rows, plan_attention(OFFSETS, is_query=is_query), positions, query_rows)
    [of_rows] = torch.autograd.grad((actual * weight).sum(), rows, retain_graph=True)
    (actual * weight).sum().backward()
    of_weights = ours.query_key_value.weight.grad + ours.anchor_query_key_value.weight.grad

    torch.testing.assert_close(actual, expected, **EXACT)
    expected_gradients = torch.autograd.grad((expected * weight).sum(), [rows, dense.query_key_value.weight])
    torch.testing.assert_close((of_rows, of_weights), expected_gradients, **EXACT)
