"""Pooling by Multihead Attention: PMA with one seed (Lee et al., Set Transformer, 2019, equations 6, 7, 11)."""

import torch
from torch import Tensor, nn


class PoolingByAttention(nn.Module):
    """PMA(Z) = MAB(seed, rFF(Z)): attention of a learned query over the rows, independent of their order."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.seed = nn.Parameter(torch.randn(d_model) * d_model**-0.5)
        self.rows = nn.Sequential(nn.Linear(d_model, d_model), nn.ReLU())
        self.attention = nn.MultiheadAttention(d_model, heads, batch_first=True)
        self.attention_norm = nn.LayerNorm(d_model)
        self.feed_forward = nn.Sequential(nn.Linear(d_model, d_model), nn.ReLU())
        self.feed_forward_norm = nn.LayerNorm(d_model)

    def forward(self, rows: Tensor) -> Tensor:
        """Map [subjects, rows, d_model] to [subjects, d_model]."""
        keys = self.rows(rows)
        seed = self.seed.expand(len(rows), 1, -1)
        pooled_rows = self.attention_norm(seed + self.attention(seed, keys, keys, need_weights=False)[0])
        return self.feed_forward_norm(pooled_rows + self.feed_forward(pooled_rows)).squeeze(1)
