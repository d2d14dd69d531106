"""BERT's blocks by loops over patients and heads, with any attention."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from nest_model.config import ModelConfig
from tests.support.reference_model import gelu, layer_norm, turn


@dataclass
class Block:
    """A block's normed input rows of one patient."""

    weights: Mapping[str, Tensor]
    config: ModelConfig
    index: int
    rows: Tensor  # [rows, d_model]
    anchors: list[int]  # those that are [CLS]

    def heads(self, layer: str) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Return each head's query, key and value, [rows, d_head], the first two rotated by row number."""
        parts = self.rows @ self.weights[f"blocks.{self.index}.attention.{layer}.weight"].T
        d_head, number = self.config.d_model // self.config.heads, torch.arange(len(self.rows)).double()
        query, key, value = (part.split(d_head, dim=-1) for part in parts.chunk(3, dim=-1))
        return [(turn(q, number), turn(k, number), v) for q, k, v in zip(query, key, value, strict=True)]


def patients(config: ModelConfig, weights, batch, attend: Callable[[Block], list[Tensor]]) -> Tensor:
    """Return each patient's last [CLS]; `attend` returns each head's output, [rows, d_head]."""
    vectors = []
    for first, end in pairwise(batch.subject_offsets.tolist()):
        bounds = batch.set_offsets[first : end + 1].tolist()
        anchors = [bound - bounds[0] for bound in bounds[:-1]]
        x = weights["embedding.weight"][batch.tokens[bounds[0] : bounds[-1]]]
        for index in range(2 * config.layers):
            name = f"blocks.{index}"
            inputs = layer_norm(x, weights[f"{name}.attention_norm.weight"])
            outputs = torch.cat(attend(Block(weights, config, index, inputs, anchors)), dim=-1)
            x = x + outputs @ weights[f"{name}.attention.out.weight"].T
            inputs = layer_norm(x, weights[f"{name}.feed_forward_norm.weight"])
            gate, value = (inputs @ weights[f"{name}.feed_forward.gate_value.weight"].T).chunk(2, dim=-1)
            x = x + (gelu(gate) * value) @ weights[f"{name}.feed_forward.out.weight"].T
        vectors.append(layer_norm(x, weights["norm.weight"])[anchors[-1]])
    return torch.stack(vectors)
