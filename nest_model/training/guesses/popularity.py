"""Token statistics of the training patients' sets, from which the constant guesses are made."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from nest_model.data.selection import Selection
from nest_model.data.seqsets import SeqSets
from schemas.tables.vocab import SPECIALS

FIRST_TOKEN = len(SPECIALS)
HALF = 0.5  # added to each token's count, so that a token never observed has a probability above 0
_PATIENTS_AT_A_TIME = 2_048


@dataclass(frozen=True)
class SetTokens:
    """The distinct tokens of some sets without specials, sorted by set and token."""

    home: np.ndarray  # i64 [pairs], the set
    token: np.ndarray  # i64 [pairs]
    count: np.ndarray  # i64 [pairs], occurrences in the set
    share: np.ndarray  # f64 [pairs], share of the set's tokens; they sum to 1 in each set

    @classmethod
    def of(cls, home: np.ndarray, token: np.ndarray, vocab_size: int) -> Self:
        """Count the tokens of each set; `home` is the set of each token."""
        is_known = token >= FIRST_TOKEN
        pairs, count = np.unique(home[is_known] * vocab_size + token[is_known], return_counts=True)
        home, token = np.divmod(pairs, vocab_size)
        totals = np.bincount(home, weights=count)
        return cls(home, token, count, count / totals[home])


@dataclass(frozen=True)
class Popularity:
    """Sums over the training patients' non-empty sets; all f64 [vocab_size], 0 for the specials."""

    tokens: np.ndarray  # occurrences of each token
    shares: np.ndarray  # sum of its shares over the sets
    holders: np.ndarray  # number of sets that hold it
    sets: int

    @classmethod
    def of(cls, seqsets: SeqSets, selection: Selection, vocab_size: int) -> Self:
        """Sum over the sets of a selection."""
        sums, sets = np.zeros((3, vocab_size)), 0
        for first in range(0, len(selection), _PATIENTS_AT_A_TIME):
            part = selection.take(np.arange(first, min(first + _PATIENTS_AT_A_TIME, len(selection))))
            home = np.repeat(np.arange(len(part.event_counts)), part.event_counts)
            contents = SetTokens.of(home, part.values(seqsets.tokens).astype(np.int64), vocab_size)
            for row, weights in zip(sums, (contents.count, contents.share, None), strict=True):
                row += np.bincount(contents.token, weights=weights, minlength=vocab_size)
            sets += len(np.unique(contents.home))
        tokens, shares, holders = sums
        return cls(tokens, shares, holders, sets)

    @cached_property
    def unigram(self) -> np.ndarray:
        """The constant guess at a token: (n + ½) / (N + V / 2), for n of N tokens and a vocabulary of V."""
        return _smoothed(self.tokens, HALF)

    @cached_property
    def mean_set(self) -> np.ndarray:
        """The constant guess at a set: the smoothed mean of the sets' distributions, (s + h) / (S + V · h).

        s is the sum of the token's shares over S sets; h = S / 2N is half a token's share of a mean set, or ½.
        """
        return _smoothed(self.shares, HALF * self.sets / self.tokens.sum() if self.sets else HALF)

    @cached_property
    def presence(self) -> np.ndarray:
        """The share of sets that hold each token, above 0 for all: (n + ½) / (S + 1), for n of S sets."""
        return (self.holders + HALF) / (self.sets + 2 * HALF)

    @cached_property
    def holding(self) -> np.ndarray:
        """The share of sets that hold each token."""
        return self.holders / max(self.sets, 1)


def _smoothed(sums: np.ndarray, half: float) -> np.ndarray:
    guess = sums + half
    guess[:FIRST_TOKEN] = 0
    total = guess.sum()
    return guess / total if total else guess
