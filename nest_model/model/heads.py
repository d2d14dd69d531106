"""Heads on the encoder's rows: a set's token distribution, and a task's classes."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn


class SetHead(nn.Module):
    """Logits of a set's token distribution from its [CLS]: Linear, GELU, norm, Linear.

    The last Linear's weight may be tied to the embedding's, see `NestModel.set_weight`. By `log_presence_ratio`, f32
    [vocab_size], tokens rank by presence, see `NestModel.presence_scores`; where it is 0, by their shares.
    """

    log_presence_ratio: Tensor

    def __init__(self, d_model: int, vocab_size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(d_model, d_model)
        self.activation = nn.GELU()
        self.norm = nn.LayerNorm(d_model, bias=False)
        self.out = nn.Linear(d_model, vocab_size)
        self.register_buffer("log_presence_ratio", torch.zeros(vocab_size))

    def before_out(self, cls_rows: Tensor) -> Tensor:
        """Return the input of the last Linear: [sets, d_model] → [sets, d_model]."""
        rows: Tensor = self.norm(self.activation(self.dense(cls_rows)))
        return rows


class ClassifierHead(nn.Module):
    """A task's logits from the [CLS] of the index set: Linear, GELU, Dropout, Linear."""

    def __init__(self, d_model: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.dense = nn.Linear(d_model, d_model)
        self.activation = nn.GELU()
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(d_model, classes)

    def forward(self, parts: Tensor) -> Tensor:
        """Return logits: [examples, 1, d_model] → [examples, classes]."""
        logits: Tensor = self.out(self.dropout(self.activation(self.dense(parts.squeeze(1)))))
        return logits


class HistoryHead(nn.Module):
    """A task's logits from several parts of an example, each with norm and dropout.

    The head is nonlinear, with an optional linear term that starts at 0: additive effects, such as those of codes, need
    not pass through the nonlinear layers.
    """

    def __init__(self, parts: int, d_model: int, classes: int, dropout: float, *, line: bool) -> None:
        super().__init__()
        norms = nn.ModuleList(nn.LayerNorm(d_model, bias=False) for _ in range(parts))
        self.norms = cast("Sequence[nn.LayerNorm]", norms)
        self.dense = nn.Linear(parts * d_model, d_model)
        self.activation = nn.GELU()
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(d_model, classes)
        self.line = nn.Linear(parts * d_model, classes, bias=False) if line else None
        for linear in (self.dense, self.out):
            nn.init.normal_(linear.weight, std=linear.in_features**-0.5)
            nn.init.zeros_(linear.bias)
        if self.line is not None:
            nn.init.zeros_(self.line.weight)

    def forward(self, parts: Tensor) -> Tensor:
        """Return logits: [examples, parts, d_model] → [examples, classes]."""
        inputs = torch.cat(
            [norm(part) for norm, part in zip(self.norms, parts.unbind(1), strict=True)], dim=1
        )
        curve: Tensor = self.out(self.dropout(self.activation(self.dense(self.dropout(inputs)))))
        return curve if self.line is None else curve + self.line(inputs)


class Votes(nn.Module):
    """A task's logits by label-wise attention over an example's events: each class weighs the votes of the events.

    After Mullenbach et al. 2018, arXiv 1802.05695, on single events, with a score of 0 for attending to no event, so
    that one event among hundreds can decide. The last set and the sets before it have separate votes.
    """

    def __init__(self, d_model: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model, bias=False)
        self.dropout = nn.Dropout(dropout)
        scores = nn.ModuleList(nn.Linear(d_model, classes) for _ in range(2))
        votes = nn.ModuleList(nn.Linear(d_model, classes, bias=False) for _ in range(2))
        self.score, self.vote = cast("Sequence[nn.Linear]", scores), cast("Sequence[nn.Linear]", votes)
        for score, vote in zip(self.score, self.vote, strict=True):
            nn.init.normal_(score.weight, std=d_model**-0.5)
            nn.init.zeros_(score.bias)
            nn.init.zeros_(vote.weight)

    def forward(self, event_vectors: Tensor, example: Tensor, is_last: Tensor, examples: int) -> Tensor:
        """Return logits, [examples, classes].

        Args:
            event_vectors: [events, d_model]. example: i64 [events]. is_last: bool [events], in the example's last set.
        """
        logits = event_vectors.new_zeros(())
        for is_part, score, vote in zip((is_last, ~is_last), self.score, self.vote, strict=True):
            events = is_part.nonzero().squeeze(1)
            rows = self.dropout(self.norm(event_vectors.index_select(0, events)))
            logits = logits + mean_vote(score(rows), vote(rows), example.index_select(0, events), examples)
        return logits


def mean_vote(scores: Tensor, votes: Tensor, example: Tensor, examples: int) -> Tensor:
    """Return the softmax-weighted mean vote of each example's events, with an extra score of 0 that votes 0.

    Computed in at least float32 whatever the training precision: autocast covers exponentials but not sums.

    Args:
        scores, votes: [events, classes]. example: i64 [events].
    """
    if scores.dtype != torch.float64:
        scores, votes = scores.float(), votes.float()
    places = example[:, None].expand_as(scores)
    zeros = scores.new_zeros(examples, scores.shape[1])
    peak = zeros.scatter_reduce(0, places, scores.detach(), "amax")
    shares = (scores - peak.index_select(0, example)).exp()
    whole = (-peak).exp().index_add(0, example, shares)
    return zeros.index_add(0, example, shares * votes) / whole
