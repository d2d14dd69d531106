"""Layers of the encoders: pre-norm and post-norm block, GeGLU, rotary positions, sinusoids, Time2Vec.

The pre-norm block follows Warner et al., ModernBERT (2024): no bias in norm, attention or GeGLU.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nest_model.model.attention import AttentionPlan
from nest_model.model.gather import take

BASE = 10_000.0


class EncoderBlock(nn.Module):
    """A pre-norm block of attention and GeGLU with residuals: 4 d² + 3 d · d_ff + 2 d parameters."""

    def __init__(
        self, d_model: int, heads: int, d_ff: int, attention: "type[Attention] | None" = None
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(d_model, bias=False)
        self.attention = (attention or Attention)(d_model, heads)
        self.feed_forward_norm = nn.LayerNorm(d_model, bias=False)
        self.feed_forward = GeGLU(d_model, d_ff)

    @property
    def residual_outputs(self) -> tuple[nn.Linear, nn.Linear]:
        """The layers whose outputs are added to the rows."""
        return self.attention.out, self.feed_forward.out

    def forward(
        self, rows: Tensor, plan: AttentionPlan, rotation: Tensor | None, query_rows: Tensor | None = None
    ) -> Tensor:
        """Return the block's output at the query rows, [queries, d_model].

        Args:
            rows: [rows, d_model], all of which are keys.
            plan: its queries are the query rows.
            rotation: see the function `rotation`; None: no positions.
            query_rows: i64 [queries], distinct; None: all rows.
        """
        update: Tensor = self.attention(self.attention_norm(rows), plan, rotation, query_rows)
        rows = (rows if query_rows is None else take(rows, query_rows)) + update
        outputs: Tensor = rows + self.feed_forward(self.feed_forward_norm(rows))
        return outputs


class PostNormBlock(nn.Module):
    """BERT's block (Devlin et al. 2019): attention and a GELU layer, each added and then normed, all with biases.

    4 d² + 2 d · d_ff + 9 d + d_ff parameters; it has no positions and no dropout.
    """

    def __init__(self, d_model: int, heads: int, d_ff: int) -> None:
        super().__init__()
        self.attention = Attention(d_model, heads, bias=True)
        self.attention_norm = nn.LayerNorm(d_model)
        self.inner = nn.Linear(d_model, d_ff)
        self.out = nn.Linear(d_ff, d_model)
        self.feed_forward_norm = nn.LayerNorm(d_model)

    @property
    def residual_outputs(self) -> tuple[nn.Linear, nn.Linear]:
        """The layers whose outputs are added to the rows."""
        return self.attention.out, self.out

    def forward(self, rows: Tensor, plan: AttentionPlan, query_rows: Tensor | None = None) -> Tensor:
        """Return the block's output at the query rows, [queries, d_model]; see EncoderBlock."""
        update: Tensor = self.attention(rows, plan, None, query_rows)
        rows = self.attention_norm((rows if query_rows is None else take(rows, query_rows)) + update)
        outputs: Tensor = self.feed_forward_norm(rows + self.out(F.gelu(self.inner(rows))))
        return outputs


class Attention(nn.Module):
    """Multi-head attention within each piece of the plan, with rotary positions on queries and keys."""

    def __init__(self, d_model: int, heads: int, *, bias: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(d_model, 3 * d_model, bias=bias)
        self.out = nn.Linear(d_model, d_model, bias=bias)

    def forward(
        self, rows: Tensor, plan: AttentionPlan, rotation: Tensor | None, query_rows: Tensor | None = None
    ) -> Tensor:
        """Return the attention output at the query rows; see EncoderBlock."""
        query, key, value = self.project(self.query_key_value, rows, rotation, query_rows)
        outputs: Tensor = self.out(plan.attend(query, key, value).flatten(-2))
        return outputs

    def project(
        self, linear: nn.Linear, rows: Tensor, rotation: Tensor | None, query_rows: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return query, key and value that a layer of 3 · d_model outputs makes, the first two rotated."""
        query, key, value = self._project(linear, rows, query_rows)
        if rotation is not None:
            query = rotate(query, rotation if query_rows is None else rotation.index_select(0, query_rows))
            key = rotate(key, rotation)
        return query, key, value

    def _project(self, linear: nn.Linear, rows: Tensor, query_rows: Tensor | None) -> tuple[Tensor, ...]:
        if query_rows is None:
            parts: tuple[Tensor, ...] = linear(rows).unflatten(-1, (3, self.heads, -1)).unbind(1)
            return parts
        widths = [rows.shape[1], 2 * rows.shape[1]]
        of_query, of_key_value = linear.weight.split(widths)
        query_bias, key_value_bias = (None, None) if linear.bias is None else linear.bias.split(widths)
        query = F.linear(take(rows, query_rows), of_query, query_bias).unflatten(-1, (self.heads, -1))
        key_value = F.linear(rows, of_key_value, key_value_bias)
        return query, *key_value.unflatten(-1, (2, self.heads, -1)).unbind(1)


class GeGLU(nn.Module):
    """GELU-gated feed-forward (Shazeer 2020): out(GELU(gate x) · value x)."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.gate_value = nn.Linear(d_model, 2 * d_ff, bias=False)
        self.out = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, rows: Tensor) -> Tensor:
        gate, value = self.gate_value(rows).chunk(2, dim=-1)
        outputs: Tensor = self.out(F.gelu(gate) * value)
        return outputs


def _angles(positions: Tensor, width: int) -> Tensor:
    """Return position · 10000^(-2j / width), f64 [rows, width / 2]."""
    exponents = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device) / width
    return positions.double()[:, None] * BASE**-exponents


def sinusoids(positions: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """Return the sines and cosines of positions in turn (Vaswani et al. 2017, section 3.5): [rows] → [rows, width]."""
    angles = _angles(positions, width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).to(dtype)


def rotation(positions: Tensor, d_head: int, dtype: torch.dtype) -> Tensor:
    """Return the rotary factors e^(i · position · 10000^(-2j / d_head)), complex [rows, d_head / 2].

    Angles are computed in float64: in float32 a position of 4,000 days is already off by 2e-4 radian.

    Args:
        positions: [rows], in days or hours.
        dtype: of the model's weights; float64 gives complex128, all else complex64.
    """
    angles = _angles(positions, d_head)
    factors = torch.polar(torch.ones_like(angles), angles)
    return factors if dtype == torch.float64 else factors.to(torch.complex64)


def rotate(rows: Tensor, factors: Tensor) -> Tensor:
    """Rotate the pairs (2j, 2j + 1) of the last axis of [rows, heads, d_head] by the factors [rows, d_head / 2]."""
    real = rows if rows.dtype == torch.float64 else rows.float()
    pairs = torch.view_as_complex(real.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * factors[:, None]).flatten(-2).to(rows.dtype)


class Angles(nn.Module):
    """The angles of times, frequency · time + phase, at learned frequencies: 2 · width parameters.

    Frequencies start at the rotary ones, 1 … about 1/10,000 per unit; what is learnt is added to them, in units of
    1/10,000. AdamW's steps are as long for all weights: a step of 2e-4 at the frequencies themselves would turn the
    angles of an hour three years on by five radians, and nothing could be learnt of long times.
    """

    def __init__(self, width: int, phase: float = 0.0) -> None:
        super().__init__()
        self.offset = nn.Parameter(torch.zeros(width))
        self.phase = nn.Parameter(torch.full((width,), phase))

    def forward(self, times: Tensor) -> Tensor:
        """Return the angles of times, fast to slow: [any] → f64 [any, width]."""
        width = len(self.offset)
        frequency = BASE ** -(torch.arange(width, device=times.device, dtype=torch.float64) / width)
        angles: Tensor = times.double()[:, None] * (frequency + self.offset / BASE) + self.phase
        return angles


class Time2Vec(nn.Module):
    """A learned embedding of a time, added to the token's: sines, the last component, the slowest, linear.

    Kazemi et al., Time2Vec (2019), equation 1, with `Angles`. Phases start at 0, so that time 0 starts as a zero
    vector. `scale` multiplies the embedding; it is 1.0 in the paper.
    """

    def __init__(self, d_model: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.angles = Angles(d_model)

    def forward(self, times: Tensor) -> Tensor:
        """Return the embedding of times: [rows] → [rows, d_model]; angles are computed in float64.

        Equal times, such as those of one blood sample's values, are computed once; a GPU would have to wait for their
        number, and computes all.
        """
        if times.is_cuda:
            return self._embed(times)
        distinct_times, place = times.unique(return_inverse=True)
        return self._embed(distinct_times).index_select(0, place)

    def _embed(self, times: Tensor) -> Tensor:
        angles = self.angles(times)
        vectors = torch.cat([angles[:, :-1].sin(), angles[:, -1:]], dim=-1)
        return self.scale * vectors.to(self.angles.phase.dtype)


def compute_dtype(rows: Tensor) -> torch.dtype:
    """Return the dtype of linear layers' outputs for these rows: autocast's, if it is enabled."""
    kind = rows.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else rows.dtype


def initialise(module: nn.Module, blocks: Sequence[EncoderBlock | PostNormBlock]) -> None:
    """Initialise every linear weight of a module that holds these blocks.

    Weights are normal with standard deviation 1 / √inputs, divided by √(2 · blocks) if they write to the residual
    stream; biases are 0.
    """
    for linear in module.modules():
        if isinstance(linear, nn.Linear):
            nn.init.normal_(linear.weight, std=linear.in_features**-0.5)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)
    with torch.no_grad():
        for block in blocks:
            for output in block.residual_outputs:
                output.weight /= math.sqrt(2 * len(blocks))
