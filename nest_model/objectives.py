"""The two pretraining losses, each over the rows that carry it, and set prediction without the set head."""

from dataclasses import dataclass

import torch
from torch import Tensor

from nest_model.cross_entropy import Targets, cross_entropy_sum
from nest_model.masking import FIRST_TOKEN, MaskedBatch
from nest_model.model import NestModel, Read

K = 10


@dataclass(frozen=True)
class Losses:
    """One (micro-)batch's part of a step: add the parts of a step up, and they are the step's means."""

    total: Tensor  # weighted, to call backward on
    mlm: Tensor  # nats per masked token, detached
    msm: Tensor  # KL in nats per masked set, the target's entropy taken off, detached


@dataclass(frozen=True)
class Ranking:
    """How well the first K guesses hit a set's distinct tokens, set by set."""

    recall: Tensor  # f64 [sets]
    ndcg: Tensor  # f64 [sets]


@dataclass(frozen=True)
class SetPrediction:
    """The tied token head read at two rows of each masked set."""

    cls: Ranking
    mask: Ranking


def pretraining_loss(
    model: NestModel, masked: MaskedBatch, *, mlm_count: int | None = None, msm_count: int | None = None
) -> Losses:
    """Return MLM + MSM, weighted as the model's config says; a term without rows is 0.

    Args:
        mlm_count: masked tokens of the whole step, over its micro-batches and ranks; None: of this batch.
        msm_count: masked sets of the whole step, likewise.
    """
    set_rows = masked.batch.cls_rows[masked.masked_sets]
    read = _read(model, masked, torch.cat([masked.mlm_rows, set_rows]))
    token_places, set_places = read.place.split([len(masked.mlm_rows), len(set_rows)])
    token_sum = _token_loss(model, read.hidden, token_places, masked.mlm_targets)
    set_sum = _set_loss(model, read.hidden, set_places, masked)
    mlm = token_sum / max(len(masked.mlm_rows) if mlm_count is None else mlm_count, 1)
    msm = set_sum / max(len(masked.masked_sets) if msm_count is None else msm_count, 1)
    total = model.config.mlm_weight * mlm + model.config.msm_weight * msm
    return Losses(total, mlm.detach(), msm.detach())


@torch.no_grad()
def set_prediction(model: NestModel, masked: MaskedBatch) -> SetPrediction:
    """Guess each masked set's tokens from its [CLS] and its [MASK] row; `masked` comes from `mask_sets`."""
    cls_rows = masked.batch.cls_rows[masked.masked_sets]
    read = model.read(masked.batch, torch.cat([cls_rows, cls_rows + 1]))
    return _set_prediction(model, masked, read.hidden, read.place)


@torch.no_grad()
def validation_scores(model: NestModel, masked: MaskedBatch) -> tuple[Tensor, Tensor, SetPrediction]:
    """Return the sums of MLM and MSM, and in the same pass set prediction, of what `mask_batch` masked."""
    cls_rows = masked.batch.cls_rows[masked.masked_sets]
    read = _read(model, masked, torch.cat([masked.mlm_rows, cls_rows, cls_rows + 1]))
    tokens, sets = read.place.split([len(masked.mlm_rows), 2 * len(cls_rows)])
    return (
        _token_loss(model, read.hidden, tokens, masked.mlm_targets),
        _set_loss(model, read.hidden, sets[: len(cls_rows)], masked),
        _set_prediction(model, masked, read.hidden, sets),
    )


def _set_prediction(model: NestModel, masked: MaskedBatch, hidden: Tensor, places: Tensor) -> SetPrediction:
    """Rank the tokens at the masked sets' [CLS] places and, behind them, at their [MASK] places."""
    at_cls, at_mask = (top_tokens(model.token_logits(hidden[at])) for at in places.chunk(2))
    targets = masked.target_sets, masked.target_tokens
    return SetPrediction(cls=rank(at_cls, *targets), mask=rank(at_mask, *targets))


def top_tokens(logits: Tensor) -> Tensor:
    """Return the K likeliest tokens, best first, specials left out: [sets, vocab_size] → i64 [sets, K]."""
    tokens = logits[:, FIRST_TOKEN:]
    return tokens.topk(min(K, tokens.shape[1])).indices + FIRST_TOKEN


def rank(guesses: Tensor, target_sets: Tensor, target_tokens: Tensor) -> Ranking:
    """Score guesses i64 [sets, K], best first, against the distinct tokens T of each set.

    Recall@K = hits / |T|; NDCG@K divides by Σ_{k ≤ min(K, |T|)} 1 / log2(k + 1): the paper's appendix on
    multiset prediction. A guess of -1 is none.

    Args:
        target_sets: i64 [targets], whose set each target is of; every set has one.
        target_tokens: i64 [targets], each token of a set once.
    """
    sets, guessed = guesses.shape
    distinct = torch.bincount(target_sets, minlength=sets)
    base = int(max(guesses.max(), target_tokens.max())) + 1 if sets else 1
    set_of_guess = torch.arange(sets, device=guesses.device)[:, None]
    hits = torch.isin(set_of_guess * base + guesses, target_sets * base + target_tokens)
    hits = (hits & (guesses >= 0)).double()
    gains = 1 / torch.log2(torch.arange(2, K + 2, dtype=torch.float64, device=guesses.device))
    best = gains.cumsum(0)[distinct.clamp(max=K) - 1]
    return Ranking(recall=hits.sum(1) / distinct, ndcg=(hits * gains[:guessed]).sum(1) / best)


def _read(model: NestModel, masked: MaskedBatch, rows: Tensor) -> Read:
    """Return the rows that carry a loss; all of them, to compare, where the heads are to be everywhere."""
    if model.config.shortcuts.heads_where_a_loss_is:
        return model.read(masked.batch, rows)
    return Read(model(masked.batch), rows)


def _token_loss(model: NestModel, hidden: Tensor, places: Tensor, tokens: Tensor) -> Tensor:
    """Sum over the masked tokens; a row that stands for several guesses at each of theirs."""
    rows, row_of_target = torch.arange(len(hidden), device=hidden.device), places
    if model.config.shortcuts.heads_where_a_loss_is:
        rows, row_of_target = torch.unique(places, return_inverse=True)
    targets = Targets(row_of_target, tokens, torch.ones_like(tokens, dtype=torch.float64))
    return cross_entropy_sum(
        hidden.index_select(0, rows),
        model.embedding.weight,
        None,
        targets,
        chunked=model.config.shortcuts.chunked_cross_entropy,
    )


def _set_loss(model: NestModel, hidden: Tensor, places: Tensor, masked: MaskedBatch) -> Tensor:
    """Sum the masked sets' divergences: cross-entropy less the entropy of the shares."""
    rows, row_of_set = masked.batch.cls_rows, masked.masked_sets
    if model.config.shortcuts.heads_where_a_loss_is:
        rows, row_of_set = torch.unique(places, return_inverse=True)
    shares = masked.target_shares
    cross_entropy = cross_entropy_sum(
        model.set_head.before_out(hidden.index_select(0, rows)),
        model.set_head.out.weight,
        model.set_head.out.bias,
        Targets(row_of_set[masked.target_sets], masked.target_tokens, shares),
        chunked=model.config.shortcuts.chunked_cross_entropy,
    )
    return cross_entropy + (shares * shares.log()).sum().to(cross_entropy.dtype)
