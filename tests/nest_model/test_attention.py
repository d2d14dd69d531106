import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nest_model.attention import MAX_WASTE, SdpaPlan, bucket_cuts, plan_attention
from nest_model.batch import offsets

piece_lengths = st.lists(st.integers(1, 40), min_size=1, max_size=30)


def _rows(lengths: list[int], seed: int = 0) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randn(sum(lengths), 2, 4, dtype=torch.float64, generator=generator, requires_grad=True)
        for _ in range(3)
    )


def _explicit(lengths: list[int], query, key, value, key_bias) -> torch.Tensor:
    out = []
    for first, end in pairwise([0, *np.cumsum(lengths).tolist()]):
        scores = torch.einsum("qhd,khd->hqk", query[first:end], key[first:end]) / 2
        out.append(torch.einsum("hqk,khd->qhd", (scores + key_bias[first:end]).softmax(-1), value[first:end]))
    return torch.cat(out)


@settings(max_examples=60, deadline=None)
@given(piece_lengths, st.booleans(), st.integers(0, 1000))
def test_attention_and_its_gradients_are_the_explicit_softmax_of_each_piece(lengths, biased, seed):
    rows = _rows(lengths, seed)
    bias = torch.rand(sum(lengths), dtype=torch.float64) * 6 if biased else None
    plan = plan_attention(offsets(torch.tensor(lengths)), bias)
    weight = torch.randn(sum(lengths), 2, 4, dtype=torch.float64)

    attended = plan.attend(*rows)
    expected = _explicit(lengths, *rows, bias if biased else torch.zeros(sum(lengths), dtype=torch.float64))

    torch.testing.assert_close(attended, expected, rtol=0, atol=1e-12)
    for ours, theirs in zip(
        torch.autograd.grad((attended * weight).sum(), rows),
        torch.autograd.grad((expected * weight).sum(), rows),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(piece_lengths, st.randoms(use_true_random=False), st.integers(0, 1000))
def test_where_few_rows_ask_they_get_what_they_get_where_all_do(lengths, random, seed):
    rows = _rows(lengths, seed)
    bias = torch.rand(sum(lengths), dtype=torch.float64) * 6
    asking = torch.tensor([random.random() < 0.3 for _ in range(sum(lengths))])
    plan = plan_attention(offsets(torch.tensor(lengths)), bias, asking=asking)
    weight = torch.randn(int(asking.sum()), 2, 4, dtype=torch.float64)

    attended = plan.attend(rows[0][asking], *rows[1:])
    expected = _explicit(lengths, *rows, bias)[asking]

    torch.testing.assert_close(attended, expected, rtol=0, atol=1e-12)
    if asking.any():
        for ours, theirs in zip(
            torch.autograd.grad((attended * weight).sum(), rows),
            torch.autograd.grad((expected * weight).sum(), rows),
            strict=True,
        ):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@given(st.lists(st.integers(1, 512), min_size=1, max_size=300))
def test_no_bucket_wastes_more_than_15_percent_and_no_piece_is_lost(lengths):
    falling = np.sort(lengths)[::-1]

    cuts = bucket_cuts(falling)

    assert cuts[0] == 0
    assert cuts[-1] == len(lengths)
    for first, end in pairwise(cuts):
        assert first < end
        assert 1 - falling[first:end].sum() / (falling[first] * (end - first)) <= MAX_WASTE + 1e-12


def test_a_plan_of_mimic_like_sets_has_few_buckets_and_little_waste():
    sizes = np.random.default_rng(0).lognormal(np.log(226) - 0.4, 0.9, 88).clip(1, 512).astype(int)
    plan = SdpaPlan.build(offsets(torch.from_numpy(sizes)), None, None)

    assert len(plan.masks) <= 12
    assert len(plan.keys.row_of_slot) - sizes.sum() <= MAX_WASTE * len(plan.keys.row_of_slot)


@given(piece_lengths)
def test_every_row_has_a_slot_of_its_own_in_its_piece(lengths):
    plan = SdpaPlan.build(offsets(torch.tensor(lengths)), None, None)

    assert len(set(plan.keys.slot_of_row.tolist())) == sum(lengths)
    assert torch.equal(plan.keys.row_of_slot[plan.keys.slot_of_row], torch.arange(sum(lengths)))


def test_a_key_biased_by_log_k_weighs_as_k_equal_keys():
    one = _rows([3])
    many = [torch.cat([rows, rows[2:].expand(4, 2, 4)]) for rows in one]  # the last row five times
    bias = torch.tensor([0.0, 0.0, np.log(5)], dtype=torch.float64)

    collapsed = plan_attention(torch.tensor([0, 3]), bias).attend(*one)
    written_out = plan_attention(torch.tensor([0, 7])).attend(*many)

    torch.testing.assert_close(collapsed, written_out[:3], rtol=0, atol=1e-12)


def test_a_row_that_is_not_finite_stays_in_its_own_piece():
    query, key, value = (rows.detach().clone() for rows in _rows([2, 3, 3, 4]))
    query[:2], key[:2], value[:2] = torch.nan, torch.nan, torch.nan

    attended = plan_attention(torch.tensor([0, 2, 5, 8, 12])).attend(query, key, value)

    assert attended[2:].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_attention_keeps_the_type_of_its_rows(dtype):
    bias = torch.tensor([0, 0, 6.2, 0, 0], dtype=torch.float64)
    rows = [part.to(dtype) for part in _rows([3, 2])]

    assert plan_attention(torch.tensor([0, 3, 5]), bias).attend(*rows).dtype == dtype


def test_the_model_imports_no_xformers():
    code = "import sys, nest_model.objectives; assert 'xformers' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
