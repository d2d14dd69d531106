import math
import subprocess
import sys
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nest_model.data.packed import offsets
from nest_model.model.attention import plan_attention
from nest_model.model.attention.packed_kernels import KERNELS, PackedPlan, _with_bias
from nest_model.model.attention.plan import BACKENDS, BackendProbe, agree, fastest
from nest_model.model.attention.sdpa import MAX_WASTE, SdpaPlan, bucket_cuts, fused_attention
from tests.support.examples import examples

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
piece_lengths = st.lists(st.integers(1, 40), min_size=1, max_size=30)


def _rows(lengths: list[int], seed: int = 0) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randn(sum(lengths), 2, 4, dtype=torch.float64, generator=generator, requires_grad=True)
        for _ in range(3)
    )


def _explicit(
    lengths: list[int], query, key, value, key_bias, *, scale: float = 1 / 2, causal: bool = False
) -> torch.Tensor:
    out = []
    for first, end in pairwise([0, *np.cumsum(lengths).tolist()]):
        scores = torch.einsum("qhd,khd->hqk", query[first:end], key[first:end]) * scale
        if causal:
            is_later = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(is_later.to(scores.device), -math.inf)
        out.append(torch.einsum("hqk,khd->qhd", (scores + key_bias[first:end]).softmax(-1), value[first:end]))
    return torch.cat(out)


@settings(max_examples=examples(60), deadline=None)
@given(piece_lengths, st.booleans(), st.booleans(), st.integers(0, 1000))
def test_attention_and_gradients_equal_the_explicit_softmax(lengths, has_bias, causal, seed):
    rows = _rows(lengths, seed)
    bias = torch.rand(sum(lengths), dtype=torch.float64) * 6 if has_bias else None
    plan = plan_attention(offsets(torch.tensor(lengths)), bias, causal=causal)
    weight = torch.randn(sum(lengths), 2, 4, dtype=torch.float64)

    outputs = plan.attend(*rows)
    bias = bias if has_bias else torch.zeros(sum(lengths), dtype=torch.float64)
    expected = _explicit(lengths, *rows, bias, causal=causal)

    torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-12)
    for ours, theirs in zip(
        torch.autograd.grad((outputs * weight).sum(), rows),
        torch.autograd.grad((expected * weight).sum(), rows),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@settings(max_examples=examples(60), deadline=None)
@given(piece_lengths, st.randoms(use_true_random=False), st.integers(0, 1000))
def test_attention_of_some_query_rows_equals_that_of_all(lengths, random, seed):
    rows = _rows(lengths, seed)
    bias = torch.rand(sum(lengths), dtype=torch.float64) * 6
    is_query = torch.tensor([random.random() < 0.3 for _ in range(sum(lengths))])
    plan = plan_attention(offsets(torch.tensor(lengths)), bias, is_query=is_query)
    weight = torch.randn(int(is_query.sum()), 2, 4, dtype=torch.float64)

    outputs = plan.attend(rows[0][is_query], *rows[1:])
    expected = _explicit(lengths, *rows, bias)[is_query]

    torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-12)
    if is_query.any():
        for ours, theirs in zip(
            torch.autograd.grad((outputs * weight).sum(), rows),
            torch.autograd.grad((expected * weight).sum(), rows),
            strict=True,
        ):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@given(st.lists(st.integers(1, 512), min_size=1, max_size=300))
def test_bucket_cuts_waste_little_and_lose_no_piece(lengths):
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
def test_every_row_has_a_separate_slot_in_its_piece(lengths):
    plan = SdpaPlan.build(offsets(torch.tensor(lengths)), None, None)

    assert len(set(plan.keys.slot_of_row.tolist())) == sum(lengths)
    assert torch.equal(plan.keys.row_of_slot[plan.keys.slot_of_row], torch.arange(sum(lengths)))


def test_a_key_biased_by_log_k_weighs_as_k_equal_keys():
    single = _rows([3])
    repeats = [torch.cat([rows, rows[2:].expand(4, 2, 4)]) for rows in single]  # the last row five times
    bias = torch.tensor([0.0, 0.0, np.log(5)], dtype=torch.float64)

    outputs = plan_attention(torch.tensor([0, 3]), bias).attend(*single)
    expected = plan_attention(torch.tensor([0, 7])).attend(*repeats)

    torch.testing.assert_close(outputs, expected[:3], rtol=0, atol=1e-12)


def test_a_row_that_is_not_finite_affects_only_its_piece():
    query, key, value = (rows.detach().clone() for rows in _rows([2, 3, 3, 4]))
    query[:2], key[:2], value[:2] = torch.nan, torch.nan, torch.nan

    outputs = plan_attention(torch.tensor([0, 2, 5, 8, 12])).attend(query, key, value)

    assert outputs[2:].isfinite().all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_attention_keeps_the_type_of_its_rows(dtype, causal):
    bias = torch.tensor([0, 0, 6.2, 0, 0], dtype=torch.float64)
    rows = [part.to(dtype) for part in _rows([3, 2])]

    assert plan_attention(torch.tensor([0, 3, 5]), bias, causal=causal).attend(*rows).dtype == dtype


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("causal", [False, True])
def test_later_rows_change_earlier_ones_only_if_attention_is_not_causal(dtype, causal):
    lengths = [9, 7, 9, 600]
    rows = [part.detach().to(dtype) for part in _rows(lengths)]
    is_later = torch.cat([torch.arange(length) > length // 2 for length in lengths])
    other_rows = [torch.where(is_later[:, None, None], 3 * part + 1, part) for part in rows]
    plan = plan_attention(offsets(torch.tensor(lengths)), causal=causal)

    outputs, others = plan.attend(*rows)[~is_later], plan.attend(*other_rows)[~is_later]

    assert torch.equal(outputs, others) is causal


def test_causal_attention_of_some_queries_is_refused():
    with pytest.raises(ValueError, match="leave out is_query"):
        plan_attention(torch.tensor([0, 3]), is_query=torch.tensor([True, False, True]), causal=True)


class Loops:
    """A kernel implemented by a loop over pieces."""

    def __init__(self, query_offsets, key_offsets, *, is_causal):
        self.offsets, self.is_causal = (query_offsets.tolist(), key_offsets.tolist()), is_causal

    def __call__(self, query, key, value, scale):
        assert query.shape[1:] == key.shape[1:] == value.shape[1:]
        out = []
        for (first_query, end_query), (first, end) in zip(*map(pairwise, self.offsets), strict=True):
            assert first_query < end_query
            scores = torch.einsum("qhd,khd->hqk", query[first_query:end_query], key[first:end]) * scale
            if self.is_causal:
                scores = scores + torch.full(scores.shape[1:], -math.inf).triu(1)
            out.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), value[first:end]))
        return torch.cat(out)


@settings(max_examples=examples(60), deadline=None)
@given(piece_lengths, st.sampled_from([0.0, 0.05, 0.5, 1.0, None]), st.booleans(), st.integers(0, 1000))
def test_a_kernel_without_bias_equals_sdpa_with_bias(lengths, query_share, has_bias, seed):
    is_causal = query_share is None
    generator = torch.Generator().manual_seed(seed)
    rows, count = _rows(lengths, seed), sum(lengths)
    bias = torch.rand(count, dtype=torch.float64, generator=generator) * 6 if has_bias else None
    is_query = torch.rand(count, generator=generator) < (1.0 if is_causal else query_share)
    query_offsets = None if is_causal else offsets(is_query.long())[offsets(torch.tensor(lengths))]
    outputs, gradients = [], []
    for build in (SdpaPlan.build, partial(PackedPlan.build, Loops)):
        outputs.append(
            build(offsets(torch.tensor(lengths)), bias, query_offsets, is_causal=is_causal).attend(
                rows[0][is_query], *rows[1:]
            )
        )
        loss = outputs[-1].square().sum()
        gradients.append(torch.autograd.grad(loss, rows, allow_unused=True, materialize_grads=True))

    torch.testing.assert_close(*outputs, rtol=0, atol=1e-12)
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_a_bias_is_as_exact_in_bfloat16_columns_as_in_float32():
    bias = torch.tensor([math.log(511), math.log(3), 0.1], dtype=torch.float64)
    nothing = torch.zeros(3, 2, 8, dtype=torch.bfloat16)

    query, key = _with_bias(nothing, nothing, bias)

    torch.testing.assert_close((query[:, 0].double() * key[:, 0].double()).sum(-1), bias, rtol=2**-23, atol=0)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.float32])
def test_cpu_attention_of_few_bfloat16_keys_rounds_once(autocast: bool, dtype: torch.dtype):
    generator = torch.Generator().manual_seed(1)
    bfloat16 = torch.randn(3, 2, 4, 50, 16, generator=generator).bfloat16()
    upstream = torch.randn(2, 4, 50, 16, generator=generator).bfloat16()
    is_key = (torch.arange(50) <= 40).expand(2, 1, 1, 50)
    mask = (
        is_key
        if dtype == torch.bool
        else torch.zeros(is_key.shape, dtype=dtype).masked_fill(~is_key, -math.inf)
    )
    inputs, exact = (bfloat16.clone().requires_grad_(), bfloat16.double().requires_grad_())

    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        outputs = fused_attention(*inputs, mask)
    outputs.backward(upstream)

    query, key, value = exact
    scores = (query @ key.transpose(-1, -2) / 4).masked_fill(~is_key, -math.inf)
    expected = scores.softmax(-1) @ value
    expected.backward(upstream.double())
    assert outputs.dtype == torch.bfloat16
    for ours, theirs in ((outputs, expected), (inputs.grad, exact.grad)):
        torch.testing.assert_close(ours.double(), theirs, rtol=2**-8, atol=1e-6)


def test_fastest_is_sdpa_on_cpu_and_for_float32():
    assert fastest(torch.device("cpu"), torch.bfloat16) == "sdpa"
    assert fastest(torch.device("cuda", 0), torch.float32) == "sdpa"


@needs_cuda
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", BACKENDS)
def test_cuda_backends_equal_the_explicit_softmax_with_gradients(name, dtype):
    device, lengths = torch.device("cuda"), [3, 1, 200, 512, 2, 64]
    if name == "xformers" and not _can_load_xformers(device, dtype):
        pytest.skip("xFormers' operator does not load here")
    rows = [torch.randn(sum(lengths), 2, 64).to(device, dtype).requires_grad_() for _ in range(3)]
    bias = torch.rand(sum(lengths), dtype=torch.float64, device=device) * 6
    some_queries = torch.rand(sum(lengths), device=device) < 0.3
    ends = offsets(torch.tensor(lengths)).to(device)
    exact = [part.detach().double().cpu().requires_grad_() for part in rows]

    for is_query, causal in ((None, False), (some_queries, False), (None, True)):
        exact_outputs = _explicit(lengths, *exact, bias.cpu(), scale=1 / 8, causal=causal)
        plan = plan_attention(ends, bias, is_query=is_query, causal=causal, dtype=dtype, backend=name)
        query_rows = slice(None) if is_query is None else is_query
        outputs = plan.attend(rows[0][query_rows], *rows[1:])
        expected = exact_outputs[query_rows if is_query is None else is_query.cpu()]
        gradients = torch.autograd.grad(outputs.float().sum(), rows)
        exact_gradients = torch.autograd.grad(expected.sum(), exact, retain_graph=True)

        torch.testing.assert_close(outputs.double().cpu(), expected, rtol=0, atol=0.03)
        for ours, theirs in zip(gradients, exact_gradients, strict=True):
            scale = float(theirs.abs().max())
            torch.testing.assert_close(ours.double().cpu(), theirs, rtol=0, atol=0.03 * scale)


def test_agree_refuses_far_values_and_nan():
    right = [torch.full((3,), 500.0), torch.ones(2)]
    assert agree([torch.full((3,), 502.0), torch.ones(2)], right)
    assert not agree([torch.full((3,), 502.0), torch.full((2,), 1.1)], right)
    assert not agree([torch.tensor([500, torch.nan, 500]), torch.ones(2)], right)


@needs_cuda
def test_fastest_on_cuda_is_a_packed_kernel_even_without_gradients():
    fastest.cache_clear()
    with torch.no_grad():  # as a prediction asks
        assert fastest(torch.device("cuda", 0), torch.bfloat16) in KERNELS


def _can_load_xformers(device, dtype) -> bool:
    try:
        BackendProbe(device, dtype).attend(BACKENDS["xformers"])
    except (ImportError, NotImplementedError, RuntimeError, AttributeError):
        return False
    return True


def test_the_model_imports_no_xformers():
    code = "import sys, nest_model.training.losses; assert 'xformers' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
