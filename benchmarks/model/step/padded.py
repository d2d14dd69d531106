"""The padded step as the paper describes it: every patient has `max_sets` sets of `max_set_rows` rows, real or padding.

Weights, blocks and masks are NEST's own; only the padding rows and the attention over them differ.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.data.seqsets import NO_TYPE
from nest_model.model.attention.sdpa import fused_attention
from nest_model.model.layers import rotation
from nest_model.model.systems.nest.encoder import LayerContext, NestModel
from nest_model.training.masking import MaskedBatch
from schemas.tables.vocab import CLS, PAD

NO_TARGET = -100  # ignored by torch's cross-entropy

Attend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class PaddedBatch:
    """B patients of m sets of n rows, flattened; padding rows are [PAD], but each set begins with a [CLS] row."""

    batch: PackedBatch  # every set n rows, every subject m sets
    row_exists: Tensor  # bool [B · m · n]
    set_exists: Tensor  # bool [B · m]
    token_targets: Tensor  # i64 [B · m · n], NO_TARGET where a row has none
    set_targets: Tensor  # [B · m, vocab_size], shares of a masked set's tokens, 0 elsewhere

    @classmethod
    def of(cls, masked_batch: MaskedBatch, config: ModelConfig) -> "PaddedBatch":
        """Pad a masked batch, whose masked sets must have all their rows (`collapsed_sets` off)."""
        batch, n, m = masked_batch.batch, config.max_set_rows, config.max_sets
        number = torch.arange(batch.sets) - torch.repeat_interleave(
            batch.subject_offsets[:-1], batch.subject_offsets.diff()
        )
        set_place = torch.repeat_interleave(batch.subject_offsets.diff()) * m + number
        in_set = torch.arange(len(batch.tokens)) - batch.set_offsets[batch.set_of_row]
        place = set_place[batch.set_of_row] * n + in_set
        sets, rows = batch.subjects * m, batch.subjects * m * n
        tokens = torch.full((rows,), PAD).index_fill_(0, torch.arange(0, rows, n), CLS)
        shares = torch.zeros(sets, config.vocab_size, dtype=torch.float64)
        target_places = set_place[masked_batch.masked_sets.sets][masked_batch.masked_sets.set_of_token]
        shares[target_places, masked_batch.masked_sets.tokens] = masked_batch.masked_sets.shares
        return cls(
            PackedBatch(
                tokens=tokens.index_copy(0, place, batch.tokens),
                hours=torch.zeros(rows).index_copy(0, place, batch.hours),
                key_bias=torch.zeros(rows, dtype=torch.float64),
                set_offsets=torch.arange(0, rows + 1, n),
                subject_offsets=torch.arange(0, sets + 1, m),
                days=torch.zeros(sets, dtype=torch.float64).index_copy(0, set_place, batch.days),
                gaps=torch.zeros(sets, dtype=torch.float64),
                visit_types=torch.full((sets,), NO_TYPE),
                days_of_year=torch.ones(sets, dtype=torch.int64),
            ),
            row_exists=(tokens == CLS).index_fill(0, place, True),
            set_exists=torch.zeros(sets, dtype=torch.bool).index_fill(0, set_place, True),
            token_targets=torch.full((rows,), NO_TARGET).index_copy(
                0, place[masked_batch.mlm_rows], masked_batch.mlm_targets
            ),
            set_targets=shares,
        )


@dataclass(frozen=True)
class PaddedPlan:
    """Attention within every piece of `slots` rows, with padding masked out as keys."""

    mask: Tensor  # [pieces, 1, 1, slots], 0 or -inf
    attend_slots: Attend

    @classmethod
    def of(cls, exists: Tensor, slots: int, attend: Attend, dtype: torch.dtype) -> "PaddedPlan":
        mask = torch.zeros(exists.shape, dtype=dtype).masked_fill(~exists, -math.inf)
        mask = mask.view(-1, 1, 1, slots)
        # a piece of padding alone would be all -inf: it attends to all its slots, and its output is unused
        return cls(mask.masked_fill(mask.isneginf().all(-1, keepdim=True), 0.0), attend)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attend within pieces; see AttentionPlan."""
        shape = (len(self.mask), self.mask.shape[-1])
        query, key, value = (rows.unflatten(0, shape).transpose(1, 2) for rows in (query, key, value))
        return self.attend_slots(query, key, value, self.mask).transpose(1, 2).flatten(0, 1)


def literal(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Attend with the scores of all pairs held in memory."""
    return (query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5 + mask).softmax(-1) @ value


def competent(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Attend by torch's fused attention."""
    return fused_attention(query, key, value, mask)


def padded_loss(
    model: NestModel, padded_batch: PaddedBatch, attend: Attend, *, heads_everywhere: bool
) -> Tensor:
    """Return the step's MLM + MSM loss: the mean cross-entropy of masked tokens, and the mean KL of masked sets.

    Args:
        heads_everywhere: compute logits of every row and every set, not only of those with a loss.
    """
    outputs = _encode(model, padded_batch, attend)
    tokens, shares = padded_batch.token_targets, padded_batch.set_targets
    cls_rows = padded_batch.batch.cls_rows
    if not heads_everywhere:
        target_rows = (tokens != NO_TARGET).nonzero().squeeze(1)
        masked_sets = shares.any(1).nonzero().squeeze(1)
        at_tokens, tokens = outputs[target_rows], tokens[target_rows]
        at_sets, shares = outputs[cls_rows[masked_sets]], shares[masked_sets]
    else:
        at_tokens, at_sets = outputs, outputs[cls_rows]
    mlm = F.cross_entropy(model.token_logits(at_tokens), tokens, ignore_index=NO_TARGET)
    log_shares = model.msm_logits(at_sets).log_softmax(-1)
    msm = F.kl_div(log_shares, shares.to(log_shares.dtype), reduction="sum") / shares.any(1).sum()
    return model.config.mlm_weight * mlm + model.config.msm_weight * msm


def _encode(model: NestModel, padded_batch: PaddedBatch, attend: Attend) -> Tensor:
    config, batch, dtype = model.config, padded_batch.batch, model.embedding.weight.dtype
    d_head = config.d_model // config.heads
    context = LayerContext(
        PaddedPlan.of(padded_batch.row_exists, config.max_set_rows, attend, dtype),
        rotation(batch.hours, d_head, dtype) if config.set_position else None,
        PaddedPlan.of(padded_batch.set_exists, config.max_sets, attend, dtype),
        rotation(batch.days, d_head, dtype),
    )
    rows = model.embedding(batch.tokens)
    for layer in model.layers:
        rows = layer(rows, batch.cls_rows, context)
    return model.norm(rows)
