"""Longformer (Beltagy et al. 2020): a sliding window, and anchors that attend to all rows and are attended by all.

The anchors are the sets' [CLS] rows. Their attention to all rows has projections of its own.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.model.cores.fixed_length import as_rows, as_sequences
from benchmarks.model.sizes import Sizes
from nest_model.model.attention.sdpa import fused_attention
from nest_model.model.layers import Attention, rotate


class LongformerCore(nn.Module):
    """One softmax over the keys of the window and of the anchors; an anchor within the window counts once.

    Queries are computed in blocks: gcd(window, N) queries attend to the block + window keys around them, with the keys
    outside a query's own window masked. So block + window scores are computed where window would suffice.
    """

    is_visible: Tensor

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.length, self.every, self.window = sizes.length, sizes.set_rows, sizes.window
        self.block = math.gcd(sizes.window, sizes.length)
        self.register_buffer("is_visible", self._visible_keys(), persistent=False)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query, key, value = (as_sequences(rows, self.length) for rows in (query, key, value))
        queries = query.unflatten(2, (-1, self.block)).transpose(1, 2).flatten(0, 1)
        mask = self.is_visible.repeat(len(query), 1, 1)[:, None]
        out = fused_attention(queries, self._around(key), self._around(value), mask)
        return out.unflatten(0, (len(query), -1)).transpose(2, 3).flatten(0, 2)

    def anchor_rows(self, rows: int, device: torch.device) -> Tensor:
        """Return the first row of every set, i64 [rows / set_rows]."""
        return torch.arange(0, rows, self.every, device=device)

    def _around(self, keys: Tensor) -> Tensor:
        """Gather the keys of each block: [sequences, heads, N, d] → [sequences · blocks, heads, block keys, d]."""
        half, heads, d_head = self.window // 2, keys.shape[1], keys.shape[3]
        near = F.pad(keys, (0, 0, half, half)).unfold(2, self.block + self.window, self.block)
        near = near.permute(0, 2, 1, 4, 3)
        anchors = keys[:, None, :, :: self.every].expand(-1, near.shape[1], heads, -1, d_head)
        return torch.cat([near, anchors], dim=3).flatten(0, 1)

    def _visible_keys(self) -> Tensor:
        """Return whether a query attends to a key, bool [blocks, block, block + window + anchors]."""
        place, key = torch.arange(self.block), torch.arange(self.block + self.window)
        in_window = (key >= place[:, None]) & (key < place[:, None] + self.window)
        position = torch.arange(0, self.length, self.block)[:, None] + key - self.window // 2
        is_countable = (position >= 0) & (position < self.length) & (position % self.every != 0)
        near = in_window & is_countable[:, None]
        anchors = near.new_ones(*near.shape[:2], self.length // self.every)
        return torch.cat([near, anchors], dim=2)


class AnchorAttention(Attention):
    """Attention in which an anchor's output comes from projections of its own, 3 d² more parameters."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__(d_model, heads)
        self.anchor_query = nn.Linear(d_model, d_model, bias=False)
        self.anchor_key_value = nn.Linear(d_model, 2 * d_model, bias=False)

    def forward(
        self, rows: Tensor, core: LongformerCore, rotation: Tensor, query_rows: None = None
    ) -> Tensor:
        query, key, value = self.query_key_value(rows).unflatten(-1, (3, self.heads, -1)).unbind(1)
        window_output = core.attend(rotate(query, rotation), rotate(key, rotation), value)
        anchors = core.anchor_rows(len(rows), rows.device)
        anchor_output = self._gather(rows, anchors, core, rotation)
        return self.out(
            window_output.index_copy(0, anchors, anchor_output.to(window_output.dtype)).flatten(-2)
        )

    def _gather(self, rows: Tensor, anchors: Tensor, core: LongformerCore, rotation: Tensor) -> Tensor:
        """Return the attention of each anchor over all rows of its sequence, [anchors, heads, d_head]."""
        query = self.anchor_query(rows.index_select(0, anchors)).unflatten(-1, (self.heads, -1))
        key, value = self.anchor_key_value(rows).unflatten(-1, (2, self.heads, -1)).unbind(1)
        query, key = rotate(query, rotation.index_select(0, anchors)), rotate(key, rotation)
        query = as_sequences(query, core.length // core.every)
        key, value = (as_sequences(part, core.length) for part in (key, value))
        return as_rows(fused_attention(query, key, value))
