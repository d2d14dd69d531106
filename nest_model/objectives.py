"""The two pretraining losses, each over the rows that carry it, and set prediction without the set head."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from nest_model.masking import FIRST_TOKEN, MaskedBatch
from nest_model.model import NestModel

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
    hidden = model(masked.batch)
    set_rows = masked.batch.cls_rows[masked.masked_sets]
    token_sum = _token_loss(model.token_logits(hidden.index_select(0, masked.mlm_rows)), masked.mlm_targets)
    set_sum = _set_loss(model.msm_logits(hidden.index_select(0, set_rows)), masked)
    mlm = token_sum / max(len(masked.mlm_rows) if mlm_count is None else mlm_count, 1)
    msm = set_sum / max(len(masked.masked_sets) if msm_count is None else msm_count, 1)
    total = model.config.mlm_weight * mlm + model.config.msm_weight * msm
    return Losses(total, mlm.detach(), msm.detach())


@torch.no_grad()
def set_prediction(model: NestModel, masked: MaskedBatch) -> SetPrediction:
    """Guess each masked set's tokens from its [CLS] and its [MASK] row; `masked` comes from `mask_sets`."""
    hidden = model(masked.batch)
    cls_rows = masked.batch.cls_rows[masked.masked_sets]
    at_cls, at_mask = (top_tokens(model.token_logits(hidden[rows])) for rows in (cls_rows, cls_rows + 1))
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


def _token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(_at_least_float32(logits), targets, reduction="sum")


def _set_loss(logits: Tensor, masked: MaskedBatch) -> Tensor:
    logits = _at_least_float32(logits)
    shares = masked.target_shares.to(logits.dtype)
    log_predicted = logits[masked.target_sets, masked.target_tokens]
    cross_entropy = logits.logsumexp(dim=1).sum() - (shares * log_predicted).sum()
    return cross_entropy + (shares * shares.log()).sum()


def _at_least_float32(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
