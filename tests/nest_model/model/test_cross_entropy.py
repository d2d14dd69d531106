import math

import pytest
import torch
from torch.nn import functional as F

from nest_model.model import cross_entropy
from nest_model.model.cross_entropy import Targets, cross_entropy_sum

ROWS, D_MODEL, VOCAB_SIZE = 23, 6, 11


def _inputs(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((ROWS, D_MODEL), (VOCAB_SIZE, D_MODEL), (VOCAB_SIZE,))
    return tuple(torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes)


def _targets() -> Targets:
    """Rows in no order, one of them twice with the same token, some without a target."""
    generator = torch.Generator().manual_seed(1)
    rows = torch.cat([torch.tensor([5, 5]), torch.randint(0, ROWS - 2, (30,), generator=generator)])
    tokens = torch.cat([torch.tensor([3, 3]), torch.randint(0, VOCAB_SIZE, (30,), generator=generator)])
    return Targets(rows, tokens, torch.rand(32, generator=generator, dtype=torch.float64))


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("logits_at_once", [1, 5 * VOCAB_SIZE, 10_000])
def test_in_chunks_it_is_torchs_own_with_its_gradients(monkeypatch, logits_at_once, with_bias):
    monkeypatch.setitem(cross_entropy._LOGITS_AT_ONCE, "cpu", logits_at_once)
    hidden, weight, bias = _inputs()
    targets = _targets()
    given = (hidden, weight, bias) if with_bias else (hidden, weight)

    found = 3 * cross_entropy_sum(hidden, weight, bias if with_bias else None, targets, in_chunks=True)
    logits = F.linear(hidden, weight, bias if with_bias else None)
    each = F.cross_entropy(logits[targets.rows], targets.tokens, reduction="none")
    expected = 3 * (each * targets.weights).sum()

    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    for ours, theirs in zip(
        torch.autograd.grad(found, given), torch.autograd.grad(expected, given), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("chunked", [True, False])
def test_without_targets_it_is_0_with_gradients_of_0(chunked):
    given = _inputs()
    nothing = torch.empty(0, dtype=torch.int64)
    none = Targets(nothing, nothing, torch.empty(0, dtype=torch.float64))

    total = cross_entropy_sum(*given, none, in_chunks=chunked)

    assert total.item() == 0
    assert all(gradient.count_nonzero() == 0 for gradient in torch.autograd.grad(total, given))


@pytest.mark.parametrize("chunked", [True, False])
def test_under_bfloat16_the_loss_is_float32_and_near(chunked):
    given = _inputs(torch.float32)
    exact = cross_entropy_sum(*given, _targets(), in_chunks=False)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = cross_entropy_sum(*given, _targets(), in_chunks=chunked)
    gradients = torch.autograd.grad(low, given)

    assert low.dtype == torch.float32
    assert [gradient.dtype for gradient in gradients] == [torch.float32] * 3
    torch.testing.assert_close(low, exact, rtol=0.02, atol=0.02)


def test_no_more_logits_exist_at_once_than_a_chunk_has(monkeypatch):
    seen = []
    linear = F.linear
    monkeypatch.setitem(cross_entropy._LOGITS_AT_ONCE, "cpu", 4 * VOCAB_SIZE)
    monkeypatch.setattr(F, "linear", lambda *given: seen.append(len(given[0])) or linear(*given))

    cross_entropy_sum(*_inputs(), _targets(), in_chunks=True)

    assert seen == [4, 4, 4, 4, 4, 3]


def test_a_loss_that_nobody_asks_the_gradient_of_makes_none(monkeypatch):
    def refuse(*_):
        raise AssertionError("gradients were made")

    monkeypatch.setattr(cross_entropy.torch, "zeros_like", refuse)  # what they would be added up in
    weight = torch.randn(VOCAB_SIZE, 4, requires_grad=True)
    targets = cross_entropy.Targets(torch.tensor([0, 1]), torch.tensor([2, 3]), torch.ones(2).double())
    with torch.no_grad():
        loss = cross_entropy.cross_entropy_sum(torch.randn(2, 4), weight, None, targets, in_chunks=True)
    assert loss.isfinite()


def test_logits_far_beyond_what_exp_can_hold_and_one_of_minus_infinity_lose_nothing():
    """In chunks the highest is taken off before the exponentials; torch's own is the reference, in float64."""
    hidden = torch.tensor([[1e3, 1.0], [-1e3, 1.0], [1.0, 1.0]])
    weight = torch.randn(VOCAB_SIZE, 2, generator=torch.Generator().manual_seed(5))
    bias = torch.zeros(VOCAB_SIZE)
    bias[7] = -math.inf
    targets = cross_entropy.Targets(torch.tensor([0, 1, 2]), torch.tensor([2, 3, 4]), torch.ones(3).double())
    given = [part.clone().requires_grad_() for part in (hidden, weight)]
    exact = [part.double().requires_grad_() for part in (hidden, weight)]

    loss = cross_entropy_sum(*given, bias, targets, in_chunks=True)
    wanted = F.cross_entropy(F.linear(*exact, bias.double()), targets.tokens, reduction="sum")

    torch.testing.assert_close(loss.double(), wanted, rtol=1e-5, atol=1e-5)
    for found, right in zip(
        torch.autograd.grad(loss, given), torch.autograd.grad(wanted, exact), strict=True
    ):
        torch.testing.assert_close(found.double(), right, rtol=1e-4, atol=1e-3)
