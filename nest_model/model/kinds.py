"""Kinds of tokens as the systems tell them apart whose weights belong to kinds: four of events, and the specials."""

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from nest_model.config import ModelConfig
from nest_model.model.encoder import Encoder

_GROUPS = {"DX": 0, "ITEM": 0, "PR": 1, "MED": 2, "IMM": 2, "LAB": 3, "VIT": 3}

SPECIAL = 4
"""The kind of [CLS], [MASK], [UNK] and the other specials."""

NUM_KINDS = 5


def kind_of_tokens(tokens: pa.Table) -> np.ndarray:
    """Return the kind of each token of a vocab/1 table sorted by token id, i64 [tokens], below NUM_KINDS.

    There are as many as MIMIC-IV has, so that a model's size does not depend on its source. A vaccine counts as a
    medicine and a vital sign as a measurement, as laboratory values are; a basket has items alone.
    """
    kinds = [_GROUPS.get(kind, SPECIAL) for kind in tokens["kind"].to_pylist()]
    return np.array(kinds, dtype=np.int64)


class KindAwareEncoder(Encoder):
    """An encoder that tells kinds of tokens apart; until the vocabulary is known, all are special."""

    kind_of_token: Tensor  # i64 [vocab_size], see `kind_of_tokens`

    def __init__(self, config: ModelConfig, *, token_width: int | None = None) -> None:
        super().__init__(config, token_width=token_width)
        self.register_buffer("kind_of_token", torch.full((config.vocab_size,), SPECIAL))

    def describe_tokens(self, tokens: pa.Table) -> None:
        """Take the items and kinds of tokens from a vocabulary; see Encoder."""
        super().describe_tokens(tokens)
        self.kind_of_token.copy_(torch.from_numpy(kind_of_tokens(tokens)))
