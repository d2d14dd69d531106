"""The six models by name. All take a PackedBatch and return [rows, d_model], as NestModel does."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.model.cores.dense import Explicit, MemoryEfficient
from benchmarks.model.cores.longformer import AnchorAttention, LongformerCore
from benchmarks.model.cores.nystromformer import NystromformerCore
from benchmarks.model.cores.performer import PerformerCore
from benchmarks.model.sizes import Sizes
from nest_model.data.packed import PackedBatch
from nest_model.model.layers import Attention, EncoderBlock, rotation
from nest_model.model.systems.nest.encoder import NestModel


class FlatModel(nn.Module):
    """NEST's blocks over each patient's rows as one sequence, with rotary positions by a row's index."""

    def __init__(
        self, sizes: Sizes, core: Callable[[Sizes], nn.Module], attention: type[Attention] = Attention
    ) -> None:
        super().__init__()
        self.sizes = sizes
        self.embedding = nn.Embedding(sizes.vocab_size, sizes.d_model)
        self.blocks = nn.ModuleList(
            EncoderBlock(sizes.d_model, sizes.heads, sizes.d_ff) for _ in range(sizes.layers)
        )
        for block in self.blocks:
            block.attention = attention(sizes.d_model, sizes.heads)
        self.cores = nn.ModuleList(core(sizes) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.d_model, bias=False)
        nn.init.normal_(self.embedding.weight, std=sizes.d_model**-0.5)

    def forward(self, batch: PackedBatch) -> Tensor:
        """Return every row after the final norm, [rows, d_model]."""
        rows = self.embedding(batch.tokens)
        places = torch.arange(self.sizes.length, device=rows.device).repeat(batch.subjects)
        turn = rotation(places, self.sizes.d_head, self.embedding.weight.dtype)
        for block, core in zip(self.blocks, self.cores, strict=True):
            rows = block(rows, core, turn)
        return self.norm(rows)

    def token_logits(self, rows: Tensor) -> Tensor:
        """Return logits over the vocabulary, from the tied embedding."""
        return F.linear(rows, self.embedding.weight)


@dataclass(frozen=True)
class Entry:
    """A row of Table 1."""

    label: str
    complexity: str  # of attention in N = m · n rows; w the window, r the features
    build: Callable[[Sizes], nn.Module]


def _nest(sizes: Sizes) -> NestModel:
    model = NestModel(sizes.config())
    del model.set_head  # the table counts the encoder and the tied head
    return model


MODELS = {
    "bert": Entry("BERT", "N²", lambda sizes: FlatModel(sizes, Explicit)),
    "bert_mea": Entry("BERT, memory-efficient", "N²", lambda sizes: FlatModel(sizes, MemoryEfficient)),
    "longformer": Entry(
        "Longformer", "N w + N m", lambda sizes: FlatModel(sizes, LongformerCore, AnchorAttention)
    ),
    "performer": Entry("Performer", "N r", lambda sizes: FlatModel(sizes, PerformerCore)),
    "nystromformer": Entry("Nyströmformer", "N m", lambda sizes: FlatModel(sizes, NystromformerCore)),
    "nest": Entry("NEST", "N n + m²", _nest),
}


def build(name: str, sizes: Sizes, device: torch.device) -> nn.Module:
    """Return a model with random float32 weights on `device`, from torch's global generator."""
    with device:
        return MODELS[name].build(sizes)
