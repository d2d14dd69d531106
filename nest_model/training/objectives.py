"""The pretraining losses, each over the rows that carry it, and set prediction."""

from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor

from nest_model.model.cross_entropy import Targets, cross_entropy_sum
from nest_model.model.encoder import NestModel, Read
from nest_model.training.masking import FIRST_TOKEN, MaskedBatch, SetTargets

K = 10


class Counts(NamedTuple):
    """How many guesses each loss of a step is the mean of, over its micro-batches and ranks."""

    mlm: int
    msm: int
    own: int

    @classmethod
    def of(cls, masked: MaskedBatch) -> Self:
        """Count a batch that is a step of its own, or the step before it is cut."""
        return cls(len(masked.mlm_rows), len(masked.hidden.sets), len(masked.seen.sets))


@dataclass(frozen=True)
class Losses:
    """One (micro-)batch's part of a step: add the parts of a step up, and they are the step's means."""

    total: Tensor  # weighted, to call backward on
    mlm: Tensor  # nats per masked token, detached
    msm: Tensor  # KL in nats per masked set, the target's entropy taken off, detached
    own: Tensor  # likewise per seen set, of its own [CLS], detached


@dataclass(frozen=True)
class Ranking:
    """How well the first K guesses hit a set's distinct tokens, set by set."""

    recall: Tensor  # f64 [sets]
    ndcg: Tensor  # f64 [sets]


@dataclass(frozen=True)
class SetPrediction:
    """What is guessed at each masked set: by the tied token head at two of its rows, by MSM's own head at its [CLS]."""

    cls: Ranking
    mask: Ranking
    head: Ranking


def pretraining_loss(model: NestModel, masked: MaskedBatch, counts: Counts | None = None) -> Losses:
    """Return MLM + MSM + own sets, weighted as the model's config says; a term without rows is 0.

    Own sets, which the paper has not: the [CLS] of a set that is not masked guesses the tokens of that very set,
    through MSM's head. So a [CLS] learns to hold its set before any task asks it to.

    Args:
        counts: of the whole step; None: of this batch.
    """
    counts = counts or Counts.of(masked)
    cls_rows = masked.batch.cls_rows
    rows = [masked.mlm_rows, cls_rows[masked.hidden.sets], cls_rows[masked.seen.sets]]
    read = _read(model, masked, torch.cat(rows))
    token_places, hidden_places, seen_places = read.place.split([len(of) for of in rows])
    mlm = _token_loss(model, read.hidden, token_places, masked.mlm_targets) / max(counts.mlm, 1)
    msm = _set_loss(model, read.hidden, hidden_places, masked.hidden) / max(counts.msm, 1)
    own = _set_loss(model, read.hidden, seen_places, masked.seen) / max(counts.own, 1)
    weights = model.config
    total = weights.mlm_weight * mlm + weights.msm_weight * msm + weights.own_set_weight * own
    return Losses(total, mlm.detach(), msm.detach(), own.detach())


@torch.no_grad()
def set_prediction(model: NestModel, masked: MaskedBatch) -> SetPrediction:
    """Guess each masked set's tokens from its [CLS] and its [MASK] row; `masked` comes from `mask_sets`."""
    cls_rows = masked.batch.cls_rows[masked.hidden.sets]
    read = model.read(masked.batch, torch.cat([cls_rows, cls_rows + 1]))
    return _set_prediction(model, masked, read.hidden, read.place)


@torch.no_grad()
def validation_scores(model: NestModel, masked: MaskedBatch) -> tuple[dict[str, Tensor], SetPrediction]:
    """Return the sums of the losses, and in the same pass set prediction, of what `mask_batch` masked."""
    cls_rows = masked.batch.cls_rows
    hidden, seen = cls_rows[masked.hidden.sets], cls_rows[masked.seen.sets]
    read = _read(model, masked, torch.cat([masked.mlm_rows, seen, hidden, hidden + 1]))
    tokens, own, sets = read.place.split([len(masked.mlm_rows), len(seen), 2 * len(hidden)])
    sums = (
        _token_loss(model, read.hidden, tokens, masked.mlm_targets),
        _set_loss(model, read.hidden, sets[: len(hidden)], masked.hidden),
        _set_loss(model, read.hidden, own, masked.seen),
    )
    return dict(zip(Counts._fields, sums, strict=True)), _set_prediction(model, masked, read.hidden, sets)


def _set_prediction(model: NestModel, masked: MaskedBatch, hidden: Tensor, places: Tensor) -> SetPrediction:
    """Rank the tokens; `places` are those of the masked sets' [CLS] and, behind them, of their [MASK] rows."""
    cls_rows, mask_rows = (hidden[at] for at in places.chunk(2))
    logits = model.token_logits(cls_rows), model.token_logits(mask_rows), model.msm_logits(cls_rows)
    targets = masked.hidden.set_of_token, masked.hidden.tokens
    return SetPrediction(*(rank(top_tokens(of), *targets) for of in logits))


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


def _set_loss(model: NestModel, hidden: Tensor, places: Tensor, targets: SetTargets) -> Tensor:
    """Sum the sets' divergences, each guessed at its place: cross-entropy less the entropy of the shares."""
    rows, row_of_set = torch.unique(places, return_inverse=True)
    if not model.config.shortcuts.heads_where_a_loss_is:
        rows, row_of_set = torch.arange(len(hidden), device=hidden.device), places
    cross_entropy = cross_entropy_sum(
        model.set_head.before_out(hidden.index_select(0, rows)),
        model.set_weight,
        model.set_head.out.bias,
        Targets(row_of_set[targets.set_of_token], targets.tokens, targets.shares),
        chunked=model.config.shortcuts.chunked_cross_entropy,
    )
    return cross_entropy + (targets.shares * targets.shares.log()).sum().to(cross_entropy.dtype)
