"""Converts packed rows into sequences of one length, and back."""

from torch import Tensor


def as_sequences(rows: Tensor, length: int) -> Tensor:
    """Reshape [sequences · length, heads, d_head] to [sequences, heads, length, d_head]."""
    return rows.unflatten(0, (-1, length)).transpose(1, 2)


def as_rows(sequences: Tensor) -> Tensor:
    """Reshape [sequences, heads, length, d_head] to [sequences · length, heads, d_head]."""
    return sequences.transpose(1, 2).flatten(0, 1)
