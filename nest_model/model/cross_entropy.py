"""Cross-entropy of a linear head in chunks of rows, so that its logits never exist all at once.

The gradients are computed with the loss, while a chunk's logits exist: they are as large as the weights, not as rows ×
vocabulary.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

_LOGITS_AT_ONCE = {"cpu": 1 << 22, "cuda": 1 << 26}  # fits a CPU's caches; keeps a GPU busy


@dataclass(frozen=True)
class Targets:
    """The target tokens of each row, with weights."""

    rows: Tensor  # i64 [targets], any order
    tokens: Tensor  # i64 [targets]
    weights: Tensor  # f64 [targets]


def cross_entropy_sum(
    hidden_states: Tensor, weight: Tensor, bias: Tensor | None, targets: Targets, *, in_chunks: bool
) -> Tensor:
    """Return Σ over targets of −weight · log softmax(hidden · weightᵀ + bias)[row, token].

    Computed in at least float32, whatever autocast says.

    Args:
        hidden_states: [rows, d_model]. weight: [vocab_size, d_model]. bias: [vocab_size] or None.
        targets: a row may have several targets or none.
        in_chunks: hold the logits of a few rows at a time instead of all.
    """
    if in_chunks:
        loss: Tensor = _ChunkedCrossEntropy.apply(  # type: ignore[no-untyped-call]  # torch leaves apply untyped
            hidden_states, weight, bias, targets, torch.is_grad_enabled()
        )
        return loss
    logits = at_least_float32(F.linear(hidden_states, weight, bias))
    log_probabilities = logits.log_softmax(dim=1)[targets.rows, targets.tokens]
    return -(targets.weights.to(logits.dtype) * log_probabilities).sum()


def at_least_float32(values: Tensor) -> Tensor:
    """Convert bfloat16 and float16 to float32; leave wider types unchanged."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden_states: Tensor, weight: Tensor, bias: Tensor | None, targets: Targets, backward: bool
    ) -> Tensor:
        kind = hidden_states.device.type
        low = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
        if (
            low == torch.float16
        ):  # gradients are computed before the loss scale and would underflow in float16
            low = torch.float32
        total = at_least_float32(hidden_states.new_zeros(()))
        needs_gradient = [backward and is_needed for is_needed in ctx.needs_input_grad]
        gradients = [
            torch.zeros_like(tensor) if tensor is not None and needs else None
            for tensor, needs in zip((hidden_states, weight, bias), needs_gradient, strict=False)
        ]
        with torch.autocast(kind, enabled=False):
            weight = weight.to(low)
            for rows, part in _chunks(
                len(hidden_states), max(_LOGITS_AT_ONCE[kind] // len(weight), 1), targets
            ):
                loss, errors = _loss_and_errors(F.linear(hidden_states[rows].to(low), weight), bias, part)
                total += loss
                _add_gradients(gradients, rows, hidden_states[rows].to(low), weight, errors)
        ctx.save_for_backward(*gradients)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return (
            *(None if tensor is None else tensor * gradient.to(tensor.dtype) for tensor in ctx.saved_tensors),
            None,
            None,
        )


def _chunks(rows: int, step: int, targets: Targets) -> Iterator[tuple[slice, Targets]]:
    """Yield runs of `step` rows with their targets, whose rows count from the first row of the run."""
    order = targets.rows.argsort(stable=True)
    by_row = Targets(targets.rows[order], targets.tokens[order], targets.weights[order])
    for first in range(0, rows, step):
        edges = torch.tensor([first, first + step], device=order.device)
        chunk = slice(*torch.searchsorted(by_row.rows, edges).tolist())
        yield (
            slice(first, first + step),
            Targets(by_row.rows[chunk] - first, by_row.tokens[chunk], by_row.weights[chunk]),
        )


def _loss_and_errors(logits: Tensor, bias: Tensor | None, targets: Targets) -> tuple[Tensor, Tensor]:
    """Return the chunk's loss and its gradient with respect to the logits (softmax · row weight − target weights)."""
    logits = at_least_float32(logits)
    if bias is not None:
        logits += bias
    weights = targets.weights.to(logits.dtype)
    row_weight = logits.new_zeros(len(logits)).index_add_(0, targets.rows, weights)
    highest = logits.amax(dim=1)
    right = logits[targets.rows, targets.tokens]
    # in place, because a chunk fills the cache; exp is the most expensive step here
    odds = logits.sub_(highest[:, None]).exp_()
    total = odds.sum(dim=1)
    loss = (row_weight * (total.log() + highest)).sum() - (weights * right).sum()
    errors = odds.mul_((row_weight / total)[:, None])
    errors.index_put_((targets.rows, targets.tokens), -weights, accumulate=True)
    return loss, errors


def _add_gradients(
    gradients: list[Tensor | None], rows: slice, hidden_states: Tensor, weight: Tensor, errors: Tensor
) -> None:
    of_hidden, of_weight, of_bias = gradients
    if of_bias is not None:
        of_bias += errors.sum(0)
    errors = errors.to(weight.dtype)
    if of_hidden is not None:
        of_hidden[rows] = (errors @ weight).to(of_hidden.dtype)
    if of_weight is not None:
        of_weight += errors.T @ hidden_states
