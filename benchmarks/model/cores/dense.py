"""Dense attention: with an explicit softmax, as in BERT, and torch's memory-efficient one."""

from torch import Tensor, nn

from benchmarks.model.cores.fixed_length import as_rows, as_sequences
from benchmarks.model.sizes import Sizes
from nest_model.model.attention.sdpa import fused_attention


class Explicit(nn.Module):
    """softmax(q · k / √d_head) · v, with the N × N scores in memory."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.length, self.scale = sizes.length, sizes.d_head**-0.5

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query, key, value = (as_sequences(rows, self.length) for rows in (query, key, value))
        return as_rows((query @ key.transpose(-1, -2) * self.scale).softmax(-1) @ value)


class MemoryEfficient(nn.Module):
    """The same result by scaled_dot_product_attention: flash or memory-efficient, depending on the device."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.length = sizes.length

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query, key, value = (as_sequences(rows, self.length) for rows in (query, key, value))
        return as_rows(fused_attention(query, key, value))
