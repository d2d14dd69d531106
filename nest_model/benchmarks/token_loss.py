"""Cross-entropy of the tied head on many rows without ever holding [rows, vocab_size]."""

from typing import Any

import torch
from torch import Tensor

ROWS_PER_CHUNK = 2048


def token_loss(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Return mean cross-entropy of hidden · weightᵀ, [rows, d] and [vocab_size, d], in at least float32.

    The products are in the dtype of `hidden`. The gradients are made on the way forward, chunk by chunk, so that
    no product is done twice.
    """
    return _ChunkedLoss.apply(hidden, weight, targets) / len(targets)


class _ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        wide = torch.promote_types(hidden.dtype, torch.float32)
        hidden_gradient = torch.empty_like(hidden)
        weight_gradient = torch.zeros_like(weight, dtype=wide)
        loss = torch.zeros((), dtype=wide, device=hidden.device)
        parts = (part.split(ROWS_PER_CHUNK) for part in (hidden, targets, hidden_gradient))
        for rows, wanted, out in zip(*parts, strict=True):
            logits = (rows @ weight.T).to(wide)
            norms = logits.logsumexp(1, keepdim=True)
            loss += (norms - logits.gather(1, wanted[:, None])).sum()
            gradient = logits.sub_(norms).exp_().scatter_add_(1, wanted[:, None], -torch.ones_like(norms))
            gradient = gradient.to(rows.dtype)
            out.copy_(gradient @ weight)
            weight_gradient += gradient.T @ rows
        ctx.save_for_backward(hidden_gradient, weight_gradient.to(weight.dtype))
        return loss

    @staticmethod
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor, Tensor, None]:
        hidden_gradient, weight_gradient = ctx.saved_tensors
        above = above.to(hidden_gradient.dtype)
        return hidden_gradient * above, weight_gradient * above, None
