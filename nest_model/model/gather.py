"""Gathers whose gradient is a gather or copy: autograd's scatter-add is several times slower on a CPU."""

from typing import Any

import torch
from torch import Tensor


def take(rows: Tensor, places: Tensor) -> Tensor:
    """Return `rows[places]`; the places, i64 [any], must be distinct."""
    result: Tensor = _Take.apply(rows, places)  # type: ignore[no-untyped-call]  # torch leaves apply untyped
    return result


def spread(rows: Tensor, places: Tensor, back: Tensor) -> Tensor:
    """Return `rows[places]`, where the gradient of each row comes from one of its places alone.

    Args:
        places: i64 [any].
        back: i64 [rows], for each row the place its gradient comes from.
    """
    result: Tensor = _Spread.apply(rows, places, back)  # type: ignore[no-untyped-call]  # as above
    return result


class _Take(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, places: Tensor) -> Tensor:
        ctx.places, ctx.count = places, len(rows)
        return rows.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        whole = gradient.new_zeros(ctx.count, *gradient.shape[1:])
        return whole.index_copy_(0, ctx.places, gradient), None


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, places: Tensor, back: Tensor) -> Tensor:
        ctx.back = back
        return rows.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient.index_select(0, ctx.back), None, None
