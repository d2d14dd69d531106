"""How well a list of guesses hits the contents of a set: Recall@10 and NDCG@10."""

from dataclasses import dataclass

import torch
from torch import Tensor

from nest_model.training.masking import FIRST_TOKEN

K = 10


@dataclass(frozen=True)
class SetScores:
    """Scores of each set: how well the first K guesses hit its distinct tokens."""

    recall: Tensor  # f64 [sets]
    ndcg: Tensor  # f64 [sets]


def top_tokens(logits: Tensor) -> Tensor:
    """Return the K likeliest tokens, best first, without specials: [sets, vocab_size] → i64 [sets, K]."""
    tokens = logits[:, FIRST_TOKEN:]
    return tokens.topk(min(K, tokens.shape[1])).indices + FIRST_TOKEN


def rank(guesses: Tensor, target_sets: Tensor, target_tokens: Tensor) -> SetScores:
    """Score guesses i64 [sets, K], best first, against the distinct tokens T of each set.

    Recall@K = hits / |T|; NDCG@K divides by Σ_{k ≤ min(K, |T|)} 1 / log2(k + 1), as in the paper's appendix on multiset
    prediction. A guess of -1 is empty.

    Args:
        target_sets: i64 [targets], the set of each target; every set has a target.
        target_tokens: i64 [targets], the distinct tokens of each set.
    """
    sets, list_length = guesses.shape
    distinct = torch.bincount(target_sets, minlength=sets)
    base = int(max(guesses.max(), target_tokens.max())) + 1 if sets else 1
    set_of_guess = torch.arange(sets, device=guesses.device)[:, None]
    hits = torch.isin(set_of_guess * base + guesses, target_sets * base + target_tokens)
    hits = (hits & (guesses >= 0)).double()
    gains = 1 / torch.log2(torch.arange(2, K + 2, dtype=torch.float64, device=guesses.device))
    best = gains.cumsum(0)[distinct.clamp(max=K) - 1]
    return SetScores(recall=hits.sum(1) / distinct, ndcg=(hits * gains[:list_length]).sum(1) / best)
