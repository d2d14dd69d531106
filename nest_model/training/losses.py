"""NEST's pretraining losses, each computed at the rows that carry it, and set prediction."""

from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor

from nest_model.model.cross_entropy import Targets, cross_entropy_sum
from nest_model.model.encoder import ReadRows
from nest_model.model.systems.nest.encoder import NestModel
from nest_model.training.masking import MaskedBatch, SetTargets
from nest_model.training.set_scores import SetScores, rank, top_tokens
from nest_model.training.token_loss import token_loss


class Counts(NamedTuple):
    """The number of guesses each loss of a step averages over, across micro-batches and ranks."""

    mlm: int
    msm: int
    own: int

    @classmethod
    def of(cls, masked_batch: MaskedBatch) -> Self:
        """Count the guesses of a whole step."""
        return cls(
            len(masked_batch.mlm_rows),
            len(masked_batch.masked_sets.sets),
            len(masked_batch.visible_sets.sets),
        )


@dataclass(frozen=True)
class Losses:
    """A micro-batch's part of a step's losses; the parts of a step sum to its means."""

    total: Tensor  # weighted sum, for backward
    mlm: Tensor  # nats per masked token, detached
    msm: Tensor  # KL in nats per masked set, i.e. without the target's entropy, detached
    own: Tensor  # KL in nats per visible set, guessed from its own [CLS], detached


@dataclass(frozen=True)
class SetPrediction:
    """Scores of masked sets: by the tied token head at [CLS] and at [MASK], and by the set head at [CLS]."""

    cls: SetScores
    mask: SetScores
    head: SetScores


def pretraining_loss(model: NestModel, masked_batch: MaskedBatch, counts: Counts | None = None) -> Losses:
    """Return MLM + MSM + own-set losses with the config's weights; a term without rows is 0.

    In the own-set loss, which the paper does not have, the [CLS] of a visible set guesses the tokens of that set
    through MSM's head, so that a [CLS] learns to represent its set before any task needs it.

    Args:
        counts: of the whole step; None: of this batch.
    """
    counts = counts or Counts.of(masked_batch)
    cls_rows = masked_batch.batch.cls_rows
    rows = [
        masked_batch.mlm_rows,
        cls_rows[masked_batch.masked_sets.sets],
        cls_rows[masked_batch.visible_sets.sets],
    ]
    read = _read(model, masked_batch, torch.cat(rows))
    token_places, masked_places, visible_places = read.place.split([len(places) for places in rows])
    mlm = token_loss(model, read.hidden_states, token_places, masked_batch.mlm_targets) / max(counts.mlm, 1)
    msm = _set_loss(model, read.hidden_states, masked_places, masked_batch.masked_sets) / max(counts.msm, 1)
    own_loss = _set_loss(model, read.hidden_states, visible_places, masked_batch.visible_sets) / max(
        counts.own, 1
    )
    weights = model.config
    total = weights.mlm_weight * mlm + weights.msm_weight * msm + weights.own_set_weight * own_loss
    return Losses(total, mlm.detach(), msm.detach(), own_loss.detach())


@torch.no_grad()
def set_prediction(model: NestModel, masked_batch: MaskedBatch) -> SetPrediction:
    """Score guesses of each masked set's tokens from its [CLS] and its [MASK] row, for a batch from `mask_sets`."""
    cls_rows = masked_batch.batch.cls_rows[masked_batch.masked_sets.sets]
    read = model.read(masked_batch.batch, torch.cat([cls_rows, cls_rows + 1]))
    return _set_prediction(model, masked_batch, read.hidden_states, read.place)


@torch.no_grad()
def validation_scores(model: NestModel, masked_batch: MaskedBatch) -> tuple[dict[str, Tensor], SetPrediction]:
    """Return the summed losses and, from the same pass, set prediction, for a batch from `mask_batch`."""
    cls_rows = masked_batch.batch.cls_rows
    masked_rows = cls_rows[masked_batch.masked_sets.sets]
    visible_rows = cls_rows[masked_batch.visible_sets.sets]
    read = _read(
        model, masked_batch, torch.cat([masked_batch.mlm_rows, visible_rows, masked_rows, masked_rows + 1])
    )
    token_places, visible_places, masked_places = read.place.split(
        [len(masked_batch.mlm_rows), len(visible_rows), 2 * len(masked_rows)]
    )
    sums = (
        token_loss(model, read.hidden_states, token_places, masked_batch.mlm_targets),
        _set_loss(model, read.hidden_states, masked_places[: len(masked_rows)], masked_batch.masked_sets),
        _set_loss(model, read.hidden_states, visible_places, masked_batch.visible_sets),
    )
    return dict(zip(Counts._fields, sums, strict=True)), _set_prediction(
        model, masked_batch, read.hidden_states, masked_places
    )


def _set_prediction(
    model: NestModel, masked_batch: MaskedBatch, hidden_states: Tensor, places: Tensor
) -> SetPrediction:
    """Rank the tokens; `places` holds the masked sets' [CLS] rows followed by their [MASK] rows."""
    cls_rows, mask_rows = (hidden_states[half] for half in places.chunk(2))
    logits = model.token_logits(cls_rows), model.token_logits(mask_rows), model.presence_scores(cls_rows)
    targets = masked_batch.masked_sets.set_of_token, masked_batch.masked_sets.tokens
    return SetPrediction(*(rank(top_tokens(row_logits), *targets) for row_logits in logits))


def _read(model: NestModel, masked_batch: MaskedBatch, rows: Tensor) -> ReadRows:
    """Return the rows that carry a loss, or all rows if the shortcut `heads_where_a_loss_is` is off."""
    if model.config.shortcuts.heads_where_a_loss_is:
        return model.read(masked_batch.batch, rows)
    return ReadRows(model(masked_batch.batch), rows)


def _set_loss(model: NestModel, hidden_states: Tensor, places: Tensor, targets: SetTargets) -> Tensor:
    """Sum the KL divergences of the sets, guessed at `places`: cross-entropy minus the entropy of the shares."""
    rows, row_of_set = torch.unique(places, return_inverse=True)
    if not model.config.shortcuts.heads_where_a_loss_is:
        rows, row_of_set = torch.arange(len(hidden_states), device=hidden_states.device), places
    cross_entropy = cross_entropy_sum(
        model.set_head.before_out(hidden_states.index_select(0, rows)),
        model.set_weight,
        model.set_head.out.bias,
        Targets(row_of_set[targets.set_of_token], targets.tokens, targets.shares),
        in_chunks=model.config.shortcuts.chunked_cross_entropy,
    )
    return cross_entropy + (targets.shares * targets.shares.log()).sum().to(cross_entropy.dtype)
