from dataclasses import replace

import pytest
import torch
from torch import Tensor

from benchmarks.model.cores.dense import Explicit, MemoryEfficient
from benchmarks.model.cores.longformer import AnchorAttention, LongformerCore
from benchmarks.model.cores.nystromformer import NystromformerCore
from benchmarks.model.cores.performer import PerformerCore
from benchmarks.model.sizes import Sizes
from nest_model.data.packed import offsets
from nest_model.model.attention import plan_attention
from nest_model.model.layers import Attention, rotation
from tests.benchmarks.model.small import SMALL

EXACT = {"rtol": 0, "atol": 1e-12}


def heads(sizes: Sizes = SMALL, seed: int = 0) -> tuple[Tensor, ...]:
    """Return query, key and value [rows, heads, d_head] of a batch."""
    generator = torch.Generator().manual_seed(seed)
    shape = (3, sizes.rows, sizes.heads, sizes.d_head)
    return torch.randn(shape, dtype=torch.float64, generator=generator).unbind(0)


def relative_error(actual: Tensor, expected: Tensor) -> float:
    return float((actual - expected).norm() / expected.norm())


def test_dense_cores_equal_nest_attention_within_each_sequence():
    plan = plan_attention(offsets(torch.full((SMALL.subjects,), SMALL.length)))
    for core in (Explicit(SMALL), MemoryEfficient(SMALL)):
        torch.testing.assert_close(core.attend(*heads()), plan.attend(*heads()), **EXACT)


def longformer_and_dense(sizes: Sizes) -> tuple[AnchorAttention, Attention]:
    """Return Longformer's attention with equal projections for rows and anchors, and the dense attention."""
    torch.manual_seed(0)
    anchored = AnchorAttention(sizes.d_model, sizes.heads).double()
    dense = Attention(sizes.d_model, sizes.heads).double()
    anchored.load_state_dict(dense.state_dict(), strict=False)
    with torch.no_grad():
        anchored.anchor_query.weight.copy_(dense.query_key_value.weight[: sizes.d_model])
        anchored.anchor_key_value.weight.copy_(dense.query_key_value.weight[sizes.d_model :])
    return anchored, dense


def test_longformer_with_a_full_window_equals_dense_attention():
    full = replace(SMALL, window=2 * SMALL.length)
    anchored, dense = longformer_and_dense(full)
    places = torch.arange(full.length).repeat(full.subjects)
    turn = rotation(places, full.d_head, torch.float64)
    rows = torch.randn(full.rows, full.d_model, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(full.rows, full.d_model, dtype=torch.float64)
    actual, expected = anchored(rows, LongformerCore(full), turn), dense(rows, Explicit(full), turn)
    torch.testing.assert_close(actual, expected, **EXACT)
    gradients = (torch.autograd.grad((out * weight).sum(), rows)[0] for out in (actual, expected))
    torch.testing.assert_close(*gradients, **EXACT)


@pytest.mark.parametrize("window", [2, 4, 10])
def test_longformer_rows_attend_to_the_window_and_the_anchors_only(window):
    sizes = replace(SMALL, window=window)
    query, key, value = heads(sizes)
    scores = torch.einsum("bqhd,bkhd->bhqk", *(part.unflatten(0, (2, -1)) for part in (query, key)))
    place = torch.arange(sizes.length)
    distance = place - place[:, None]
    is_visible = ((distance >= -window // 2) & (distance < window // 2)) | (place % sizes.set_rows == 0)
    weights = (scores / sizes.d_head**0.5).masked_fill(~is_visible, -torch.inf).softmax(-1)
    expected = torch.einsum("bhqk,bkhd->bqhd", weights, value.unflatten(0, (2, -1))).flatten(0, 1)
    torch.testing.assert_close(LongformerCore(sizes).attend(query, key, value), expected, **EXACT)


def test_longformer_anchor_attends_to_exactly_one_sequence():
    attention = AnchorAttention(SMALL.d_model, SMALL.heads).double()
    turn = rotation(torch.arange(SMALL.length).repeat(2), SMALL.d_head, torch.float64)
    rows = torch.randn(SMALL.rows, SMALL.d_model, dtype=torch.float64, requires_grad=True)
    anchor = attention(rows, LongformerCore(SMALL), turn)[SMALL.length]  # the second sequence's first
    has_gradient = torch.autograd.grad(anchor.sum(), rows)[0].abs().sum(1) > 0
    assert has_gradient.tolist() == [False] * SMALL.length + [True] * SMALL.length


def test_performer_error_falls_with_the_square_root_of_the_features():
    query, key, value = heads()
    query, key = query / 3, key / 3  # the features' variance grows with the exponential of these
    dense = Explicit(SMALL).attend(query, key, value)
    torch.manual_seed(0)

    def error(features: int) -> float:
        cores = [PerformerCore(SMALL, features).double() for _ in range(10)]
        return sum(relative_error(core.attend(query, key, value), dense) for core in cores) / 10

    error_16, error_256, error_4096 = error(16), error(256), error(4096)
    assert error_16 > 3 * error_256 > 9 * error_4096  # 4 times each, in the limit
    assert error_4096 < 0.02


def test_nystromformer_with_a_landmark_per_row_converges_to_dense():
    query, _, value = heads()
    key = 4 * query  # each row attends to itself most: the softmax matrix is far from singular
    dense = Explicit(SMALL).attend(query, key, value)
    errors = [
        relative_error(NystromformerCore(SMALL, SMALL.length, iterations).attend(query, key, value), dense)
        for iterations in (2, 6, 30)
    ]
    assert errors[0] > errors[1] > errors[2]
    assert errors[1] < 0.05
    assert errors[2] < 1e-10


def test_nystromformer_landmarks_are_the_means_of_the_sets():
    query, key, value = heads()
    constant = [
        rows.unflatten(0, (-1, SMALL.set_rows)).mean(1).repeat_interleave(SMALL.set_rows, 0)
        for rows in (query, key)
    ]
    actual = NystromformerCore(SMALL, iterations=60).attend(*constant, value)
    torch.testing.assert_close(actual, Explicit(SMALL).attend(*constant, value), rtol=0, atol=1e-8)
