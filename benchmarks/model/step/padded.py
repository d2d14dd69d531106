"""The step as the paper draws it: every subject `max_sets` sets of `max_set_rows` rows, whether or not they are there.

The weights, blocks and masks are the product's; only the rows that are not there, and the attention over them, are not.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.model.attention.sdpa import fused_attention
from nest_model.model.encoder import LayerContext, NestModel
from nest_model.model.layers import rotation
from nest_model.training.masking import MaskedBatch
from schemas.tables.vocab import CLS, PAD

NO_TARGET = -100  # what torch's cross-entropy leaves out

Attend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Padded:
    """B subjects, m sets, n rows, flat; rows that are not there are [PAD], but each set has its [CLS]."""

    batch: PackedBatch  # every set n rows, every subject m sets
    row_exists: Tensor  # bool [B · m · n]
    set_exists: Tensor  # bool [B · m]
    token_targets: Tensor  # i64 [B · m · n], NO_TARGET where none
    set_targets: Tensor  # [B · m, vocab_size], shares of a masked set's tokens, 0 elsewhere

    @classmethod
    def of(cls, masked: MaskedBatch, config: ModelConfig) -> "Padded":
        """Lay a masked batch out; its masked sets must be written out (`collapsed_sets` off)."""
        batch, n, m = masked.batch, config.max_set_rows, config.max_sets
        number = torch.arange(batch.sets) - torch.repeat_interleave(
            batch.subject_offsets[:-1], batch.subject_offsets.diff()
        )
        set_place = torch.repeat_interleave(batch.subject_offsets.diff()) * m + number
        in_set = torch.arange(len(batch.tokens)) - batch.set_offsets[batch.set_of_row]
        place = set_place[batch.set_of_row] * n + in_set
        sets, rows = batch.subjects * m, batch.subjects * m * n
        tokens = torch.full((rows,), PAD).index_fill_(0, torch.arange(0, rows, n), CLS)
        shares = torch.zeros(sets, config.vocab_size, dtype=torch.float64)
        target_places = set_place[masked.masked_sets.sets][masked.masked_sets.set_of_token]
        shares[target_places, masked.masked_sets.tokens] = masked.masked_sets.shares
        return cls(
            PackedBatch(
                tokens=tokens.index_copy(0, place, batch.tokens),
                hours=torch.zeros(rows).index_copy(0, place, batch.hours),
                key_bias=torch.zeros(rows, dtype=torch.float64),
                set_offsets=torch.arange(0, rows + 1, n),
                subject_offsets=torch.arange(0, sets + 1, m),
                days=torch.zeros(sets, dtype=torch.float64).index_copy(0, set_place, batch.days),
            ),
            row_exists=(tokens == CLS).index_fill(0, place, True),
            set_exists=torch.zeros(sets, dtype=torch.bool).index_fill(0, set_place, True),
            token_targets=torch.full((rows,), NO_TARGET).index_copy(
                0, place[masked.mlm_rows], masked.mlm_targets
            ),
            set_targets=shares,
        )


@dataclass(frozen=True)
class PaddedPlan:
    """Attention among the slots of every piece, those that are not there masked out as keys."""

    mask: Tensor  # [pieces, 1, 1, slots], 0 or -inf
    attend_slots: Attend

    @classmethod
    def of(cls, exists: Tensor, slots: int, attend: Attend, dtype: torch.dtype) -> "PaddedPlan":
        mask = torch.zeros(exists.shape, dtype=dtype).masked_fill(~exists, -math.inf)
        mask = mask.view(-1, 1, 1, slots)
        # a piece of which nothing is there would be all -inf: it attends to anything, and nobody reads it
        return cls(mask.masked_fill(mask.isneginf().all(-1, keepdim=True), 0.0), attend)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See AttentionPlan."""
        shape = (len(self.mask), self.mask.shape[-1])
        filled = (rows.unflatten(0, shape).transpose(1, 2) for rows in (query, key, value))
        return self.attend_slots(*filled, self.mask).transpose(1, 2).flatten(0, 1)


def literal(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Attend with the scores of all pairs in memory."""
    return (query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5 + mask).softmax(-1) @ value


def competent(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Attend by torch's own fused attention."""
    return fused_attention(query, key, value, mask)


def padded_loss(model: NestModel, padded: Padded, attend: Attend, *, heads_everywhere: bool) -> Tensor:
    """Return the step's MLM + MSM: cross-entropy of masked tokens, KL of masked sets, each a mean.

    Args:
        heads_everywhere: logits of every row and every set, not of those alone that carry a loss.
    """
    hidden = _encode(model, padded, attend)
    tokens, shares = padded.token_targets, padded.set_targets
    cls_rows = padded.batch.cls_rows
    if not heads_everywhere:
        asked = (tokens != NO_TARGET).nonzero().squeeze(1)
        masked_sets = shares.any(1).nonzero().squeeze(1)
        at_tokens, tokens = hidden[asked], tokens[asked]
        at_sets, shares = hidden[cls_rows[masked_sets]], shares[masked_sets]
    else:
        at_tokens, at_sets = hidden, hidden[cls_rows]
    mlm = F.cross_entropy(model.token_logits(at_tokens), tokens, ignore_index=NO_TARGET)
    guessed = model.msm_logits(at_sets).log_softmax(-1)
    msm = F.kl_div(guessed, shares.to(guessed.dtype), reduction="sum") / shares.any(1).sum()
    return model.config.mlm_weight * mlm + model.config.msm_weight * msm


def _encode(model: NestModel, padded: Padded, attend: Attend) -> Tensor:
    config, batch, dtype = model.config, padded.batch, model.embedding.weight.dtype
    d_head = config.d_model // config.heads
    attending = LayerContext(
        PaddedPlan.of(padded.row_exists, config.max_set_rows, attend, dtype),
        rotation(batch.hours, d_head, dtype) if config.set_position else None,
        PaddedPlan.of(padded.set_exists, config.max_sets, attend, dtype),
        rotation(batch.days, d_head, dtype),
    )
    rows = model.embedding(batch.tokens)
    for layer in model.layers:
        rows = layer(rows, batch.cls_rows, attending)
    return model.norm(rows)
