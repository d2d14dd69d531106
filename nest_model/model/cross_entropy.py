"""Cross-entropy of a linear head in chunks of rows, so that its logits never exist all at once.

The gradients are taken with the loss, while a chunk's logits are at hand: they are needed once, and are as large as the
weights, not as rows × vocabulary.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

_LOGITS_AT_ONCE = {"cpu": 1 << 22, "cuda": 1 << 26}  # a CPU's caches hold them; a GPU is kept busy


@dataclass(frozen=True)
class Targets:
    """What each row should guess: tokens and their weights."""

    rows: Tensor  # i64 [targets], any order
    tokens: Tensor  # i64 [targets]
    weights: Tensor  # f64 [targets]


def cross_entropy_sum(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Targets, *, chunked: bool
) -> Tensor:
    """Return Σ over targets of −weight · log softmax(hidden · weightᵀ + bias)[row, token].

    In float32 at least, whatever autocast says.

    Args:
        hidden: [rows, d_model]. weight: [vocab_size, d_model]. bias: [vocab_size] or None.
        targets: of these rows; several of a row, or none, are allowed.
        chunked: hold the logits of a few rows at a time, not of all.
    """
    if chunked:
        return _ChunkedCrossEntropy.apply(hidden, weight, bias, targets, torch.is_grad_enabled())
    logits = at_least_float32(F.linear(hidden, weight, bias))
    guessed = logits.log_softmax(dim=1)[targets.rows, targets.tokens]
    return -(targets.weights.to(logits.dtype) * guessed).sum()


def at_least_float32(values: Tensor) -> Tensor:
    """Return bfloat16 and float16 as float32, all else as it is."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Targets, backward: bool
    ) -> Tensor:
        kind = hidden.device.type
        low = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
        if low == torch.float16:  # the gradients are taken before they are scaled, and would vanish in it
            low = torch.float32
        total = at_least_float32(hidden.new_zeros(()))
        wanted = [backward and needed for needed in ctx.needs_input_grad]
        gradients = [
            torch.zeros_like(given) if given is not None and is_wanted else None
            for given, is_wanted in zip((hidden, weight, bias), wanted, strict=False)
        ]
        with torch.autocast(kind, enabled=False):
            weight = weight.to(low)
            for rows, part in _chunks(len(hidden), max(_LOGITS_AT_ONCE[kind] // len(weight), 1), targets):
                loss, errors = _loss_and_errors(F.linear(hidden[rows].to(low), weight), bias, part)
                total += loss
                _add_gradients(gradients, rows, hidden[rows].to(low), weight, errors)
        ctx.save_for_backward(*gradients)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return (
            *(None if saved is None else saved * gradient.to(saved.dtype) for saved in ctx.saved_tensors),
            None,
            None,
        )


def _chunks(rows: int, step: int, targets: Targets) -> Iterator[tuple[slice, Targets]]:
    """Yield runs of `step` rows with their targets, counted from the first row of the run."""
    order = targets.rows.argsort(stable=True)
    by_row = Targets(targets.rows[order], targets.tokens[order], targets.weights[order])
    for first in range(0, rows, step):
        edges = torch.tensor([first, first + step], device=order.device)
        own = slice(*torch.searchsorted(by_row.rows, edges).tolist())
        yield (
            slice(first, first + step),
            Targets(by_row.rows[own] - first, by_row.tokens[own], by_row.weights[own]),
        )


def _loss_and_errors(logits: Tensor, bias: Tensor | None, targets: Targets) -> tuple[Tensor, Tensor]:
    """Return the chunk's loss, and its gradient by the logits (softmax · row's weight − target weights)."""
    logits = at_least_float32(logits)
    if bias is not None:
        logits += bias
    weights = targets.weights.to(logits.dtype)
    row_weight = logits.new_zeros(len(logits)).index_add_(0, targets.rows, weights)
    highest = logits.amax(dim=1)
    right = logits[targets.rows, targets.tokens]
    odds = logits.sub_(highest[:, None]).exp_()  # in place: a chunk fills the cache, and exp costs most here
    total = odds.sum(dim=1)
    loss = (row_weight * (total.log() + highest)).sum() - (weights * right).sum()
    errors = odds.mul_((row_weight / total)[:, None])
    errors.index_put_((targets.rows, targets.tokens), -weights, accumulate=True)
    return loss, errors


def _add_gradients(
    gradients: list[Tensor | None], rows: slice, hidden: Tensor, weight: Tensor, errors: Tensor
) -> None:
    of_hidden, of_weight, of_bias = gradients
    if of_bias is not None:
        of_bias += errors.sum(0)
    errors = errors.to(weight.dtype)
    if of_hidden is not None:
        of_hidden[rows] = (errors @ weight).to(of_hidden.dtype)
    if of_weight is not None:
        of_weight += errors.T @ hidden
