"""The pieces both encoders are made of: pre-norm block, GeGLU, rotary positions, Time2Vec.

Modern encoder block after Warner et al., ModernBERT (2024): no bias in norm, attention or GeGLU.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nest_model.model.attention import AttentionPlan
from nest_model.model.gather import take

BASE = 10_000.0


class Block(nn.Module):
    """Attention and GeGLU, each on the normed rows and added to them: 4 d² + 3 d · d_ff + 2 d parameters."""

    def __init__(self, d_model: int, heads: int, d_ff: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(d_model, bias=False)
        self.attention = Attention(d_model, heads)
        self.feed_forward_norm = nn.LayerNorm(d_model, bias=False)
        self.feed_forward = GeGLU(d_model, d_ff)

    def forward(
        self, rows: Tensor, plan: AttentionPlan, rotation: Tensor | None, asking: Tensor | None = None
    ) -> Tensor:
        """Return what becomes of the rows at the places `asking`, of all with None: [asking, d_model].

        Args:
            rows: [rows, d_model], all of which are attended to.
            plan: whose queries are the rows asking.
            rotation: see `rotation`; None: no positions.
            asking: i64 [asking], all different.
        """
        attended = self.attention(self.attention_norm(rows), plan, rotation, asking)
        rows = (rows if asking is None else take(rows, asking)) + attended
        return rows + self.feed_forward(self.feed_forward_norm(rows))


class Attention(nn.Module):
    """Multi-head attention among the rows of one piece of the plan, positions by rotation of q and k."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(d_model, 3 * d_model, bias=False)
        self.out = nn.Linear(d_model, d_model, bias=False)

    def forward(
        self, rows: Tensor, plan: AttentionPlan, rotation: Tensor | None, asking: Tensor | None = None
    ) -> Tensor:
        """See Block."""
        query, key, value = self._project(rows, asking)
        if rotation is not None:
            query = rotate(query, rotation if asking is None else rotation.index_select(0, asking))
            key = rotate(key, rotation)
        return self.out(plan.attend(query, key, value).flatten(-2))

    def _project(self, rows: Tensor, asking: Tensor | None) -> tuple[Tensor, ...]:
        if asking is None:
            return self.query_key_value(rows).unflatten(-1, (3, self.heads, -1)).unbind(1)
        of_query, of_key_value = self.query_key_value.weight.split([rows.shape[1], 2 * rows.shape[1]])
        query = F.linear(take(rows, asking), of_query).unflatten(-1, (self.heads, -1))
        return query, *F.linear(rows, of_key_value).unflatten(-1, (2, self.heads, -1)).unbind(1)


class GeGLU(nn.Module):
    """GELU-gated feed-forward (Shazeer 2020): out(GELU(gate x) · value x)."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.gate_value = nn.Linear(d_model, 2 * d_ff, bias=False)
        self.out = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, rows: Tensor) -> Tensor:
        gate, value = self.gate_value(rows).chunk(2, dim=-1)
        return self.out(F.gelu(gate) * value)


def rotation(positions: Tensor, d_head: int, dtype: torch.dtype) -> Tensor:
    """Return the rotary factors e^(i · position · 10000^(-2j / d_head)), complex [rows, d_head / 2].

    Angles are taken in float64: a position of 4,000 days in float32 is already off by 2e-4 radian.

    Args:
        positions: [rows], in the unit the model is told (days or hours).
        dtype: of the model's weights; float64 gives complex128, all else complex64.
    """
    exponents = torch.arange(0, d_head, 2, dtype=torch.float64, device=positions.device) / d_head
    angles = positions.double()[:, None] * BASE**-exponents
    turned = torch.polar(torch.ones_like(angles), angles)
    return turned if dtype == torch.float64 else turned.to(torch.complex64)


def rotate(rows: Tensor, turn: Tensor) -> Tensor:
    """Turn the pairs (2j, 2j + 1) of the last axis of [rows, heads, d_head] by [rows, d_head / 2]."""
    real = rows if rows.dtype == torch.float64 else rows.float()
    pairs = torch.view_as_complex(real.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turn[:, None]).flatten(-2).to(rows.dtype)


class Time2Vec(nn.Module):
    """A learned embedding of a time, added to the token's: one linear part, the rest sines.

    Kazemi et al., Time2Vec (2019), equation 1. Frequencies start at the rotary ones (1 … 1/10,000 per unit,
    the slowest linear) and phases at 0, so that time 0 starts as nothing. `scale` multiplies what is added;
    the paper's table has 1.0.
    """

    def __init__(self, d_model: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.frequency = nn.Parameter(BASE ** -(torch.arange(d_model - 1, -1, -1) / d_model))
        self.phase = nn.Parameter(torch.zeros(d_model))

    def forward(self, times: Tensor) -> Tensor:
        """times [rows] → [rows, d_model]; angles in float64."""
        angles = times.double()[:, None] * self.frequency + self.phase
        embedded = torch.cat([angles[:, :1], angles[:, 1:].sin()], dim=-1)
        return self.scale * embedded.to(self.frequency.dtype)
