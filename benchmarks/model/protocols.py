"""The four protocols of Table 1: the computation on one batch, the same for every model."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from benchmarks.model.sets import BenchmarkBatch
from nest_model.model.cross_entropy import Targets, cross_entropy_sum


@dataclass(frozen=True)
class TimingProtocol:
    """The precision, whether there is a backward pass, and which rows the head is applied to."""

    words: str
    weights: torch.dtype
    products: torch.dtype  # of matrix products; by autocast where it differs from that of the weights
    backward: bool
    reads_all: bool = True

    def prepare(self, model: nn.Module) -> nn.Module:
        """Return the model with its weights in the protocol's dtype."""
        return model.to(self.weights)

    def step(self, model: nn.Module, batch: BenchmarkBatch) -> None:
        """Run one batch, after clearing the gradients of the previous one."""
        if not self.backward:
            with torch.no_grad():
                model.token_logits(model(batch.batch))
            return
        model.zero_grad(set_to_none=True)
        with self._autocast(batch.targets.device):
            outputs, tokens = model(batch.batch), batch.targets
            if not self.reads_all:
                outputs, tokens = outputs.index_select(0, batch.read_rows), tokens[batch.read_rows]
            rows = torch.arange(len(tokens), device=tokens.device)
            targets = Targets(rows, tokens, torch.ones_like(tokens, dtype=torch.float64))
            loss = cross_entropy_sum(outputs, model.embedding.weight, None, targets, in_chunks=True)
        (loss / len(tokens)).backward()

    def _autocast(self, device: torch.device) -> AbstractContextManager[Any]:
        return nullcontext() if self.products == self.weights else torch.autocast(device.type, self.products)


PROTOCOLS = {
    "A": TimingProtocol(
        "forward, no gradient, bf16, logits of all rows", torch.bfloat16, torch.bfloat16, False
    ),
    "B": TimingProtocol(
        "forward and backward, bf16 autocast, loss on all rows", torch.float32, torch.bfloat16, True
    ),
    "C": TimingProtocol(
        "forward and backward, bf16 autocast, loss on 20 % of the rows",
        torch.float32,
        torch.bfloat16,
        True,
        reads_all=False,
    ),
    "D": TimingProtocol(
        "forward and backward, fp32 without TF32, loss on all rows", torch.float32, torch.float32, True
    ),
}
