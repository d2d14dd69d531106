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
    """Return targets in no order, with a duplicate of row and token, and rows without a target."""
    generator = torch.Generator().manual_seed(1)
    rows = torch.cat([torch.tensor([5, 5]), torch.randint(0, ROWS - 2, (30,), generator=generator)])
    tokens = torch.cat([torch.tensor([3, 3]), torch.randint(0, VOCAB_SIZE, (30,), generator=generator)])
    return Targets(rows, tokens, torch.rand(32, generator=generator, dtype=torch.float64))


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("logits_at_once", [1, 5 * VOCAB_SIZE, 10_000])
def test_chunked_cross_entropy_equals_torch_with_gradients(monkeypatch, logits_at_once, with_bias):
    monkeypatch.setitem(cross_entropy._LOGITS_AT_ONCE, "cpu", logits_at_once)
    hidden_states, weight, bias = _inputs()
    targets = _targets()
    inputs = (hidden_states, weight, bias) if with_bias else (hidden_states, weight)

    loss = 3 * cross_entropy_sum(hidden_states, weight, bias if with_bias else None, targets, in_chunks=True)
    logits = F.linear(hidden_states, weight, bias if with_bias else None)
    each = F.cross_entropy(logits[targets.rows], targets.tokens, reduction="none")
    expected = 3 * (each * targets.weights).sum()

    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-12)
    for ours, theirs in zip(
        torch.autograd.grad(loss, inputs), torch.autograd.grad(expected, inputs), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("in_chunks", [True, False])
def test_cross_entropy_without_targets_is_0_with_gradients_of_0(in_chunks):
    inputs = _inputs()
    nothing = torch.empty(0, dtype=torch.int64)
    no_targets = Targets(nothing, nothing, torch.empty(0, dtype=torch.float64))

    total = cross_entropy_sum(*inputs, no_targets, in_chunks=in_chunks)

    assert total.item() == 0
    assert all(gradient.count_nonzero() == 0 for gradient in torch.autograd.grad(total, inputs))


@pytest.mark.parametrize("in_chunks", [True, False])
def test_cross_entropy_under_bfloat16_is_float32_and_close(in_chunks):
    inputs = _inputs(torch.float32)
    exact = cross_entropy_sum(*inputs, _targets(), in_chunks=False)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = cross_entropy_sum(*inputs, _targets(), in_chunks=in_chunks)
    gradients = torch.autograd.grad(low, inputs)

    assert low.dtype == torch.float32
    assert [gradient.dtype for gradient in gradients] == [torch.float32] * 3
    torch.testing.assert_close(low, exact, rtol=0.02, atol=0.02)


def test_chunked_cross_entropy_bounds_the_logits_in_memory(monkeypatch):
    chunk_sizes = []
    linear = F.linear
    monkeypatch.setitem(cross_entropy._LOGITS_AT_ONCE, "cpu", 4 * VOCAB_SIZE)
    monkeypatch.setattr(F, "linear", lambda *inputs: chunk_sizes.append(len(inputs[0])) or linear(*inputs))

    cross_entropy_sum(*_inputs(), _targets(), in_chunks=True)

    assert chunk_sizes == [4, 4, 4, 4, 4, 3]


def test_cross_entropy_without_grad_computes_no_gradients(monkeypatch):
    def refuse(*_):
        raise AssertionError("gradients were made")

    monkeypatch.setattr(cross_entropy.torch, "zeros_like", refuse)  # allocates the gradients
    weight = torch.randn(VOCAB_SIZE, 4, requires_grad=True)
    targets = cross_entropy.Targets(torch.tensor([0, 1]), torch.tensor([2, 3]), torch.ones(2).double())
    with torch.no_grad():
        loss = cross_entropy.cross_entropy_sum(torch.randn(2, 4), weight, None, targets, in_chunks=True)
    assert loss.isfinite()


def test_cross_entropy_handles_extreme_and_infinite_logits():
    """Chunks subtract the maximum before the exponentials; torch's float64 loss is the reference."""
    hidden_states = torch.tensor([[1e3, 1.0], [-1e3, 1.0], [1.0, 1.0]])
    weight = torch.randn(VOCAB_SIZE, 2, generator=torch.Generator().manual_seed(5))
    bias = torch.zeros(VOCAB_SIZE)
    bias[7] = -math.inf
    targets = cross_entropy.Targets(torch.tensor([0, 1, 2]), torch.tensor([2, 3, 4]), torch.ones(3).double())
    inputs = [part.clone().requires_grad_() for part in (hidden_states, weight)]
    exact = [part.double().requires_grad_() for part in (hidden_states, weight)]

    loss = cross_entropy_sum(*inputs, bias, targets, in_chunks=True)
    expected = F.cross_entropy(F.linear(*exact, bias.double()), targets.tokens, reduction="sum")

    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-5)
    for gradient, exact_gradient in zip(
        torch.autograd.grad(loss, inputs), torch.autograd.grad(expected, exact), strict=True
    ):
        torch.testing.assert_close(gradient.double(), exact_gradient, rtol=1e-4, atol=1e-3)
