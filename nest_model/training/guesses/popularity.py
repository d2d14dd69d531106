"""What the sets of the training patients hold: the constant guesses are made of it."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from nest_model.data.selection import Selection
from nest_model.data.seqsets import SeqSets
from schemas.tables.vocab import SPECIALS

FIRST_TOKEN = len(SPECIALS)
HALF = 0.5  # of a token, added to each token's count, so that one never seen has a probability too
_PATIENTS_AT_A_TIME = 2_048


@dataclass(frozen=True)
class SetTokens:
    """The distinct tokens of some sets, specials left out; rising by set, then by token."""

    home: np.ndarray  # i64 [pairs], the set
    token: np.ndarray  # i64 [pairs]
    count: np.ndarray  # i64 [pairs], how often the set holds it
    share: np.ndarray  # f64 [pairs], of the set's tokens; they sum to 1 in each set

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
    """Sums over the training patients' sets that hold any token; all f64 [vocab_size], 0 for the specials."""

    tokens: np.ndarray  # how often each token occurs
    shares: np.ndarray  # the sum of its shares of the sets
    holders: np.ndarray  # how many sets hold it
    sets: int

    @classmethod
    def of(cls, seqsets: SeqSets, selection: Selection, vocab_size: int) -> Self:
        """Add up the sets of a selection."""
        sums, sets = np.zeros((3, vocab_size)), 0
        for first in range(0, len(selection), _PATIENTS_AT_A_TIME):
            part = selection.take(np.arange(first, min(first + _PATIENTS_AT_A_TIME, len(selection))))
            home = np.repeat(np.arange(len(part.event_counts)), part.event_counts)
            contents = SetTokens.of(home, part.values(seqsets.tokens).astype(np.int64), vocab_size)
            for row, weights in zip(sums, (contents.count, contents.share, None), strict=True):
                row += np.bincount(contents.token, weights=weights, minlength=vocab_size)
            sets += len(np.unique(contents.home))
        return cls(*sums, sets)

    @cached_property
    def unigram(self) -> np.ndarray:
        """The constant guess at a token: (n + ½) / (N + V / 2), n its count of N tokens, V tokens there are."""
        return _smoothed(self.tokens, HALF)

    @cached_property
    def mean_set(self) -> np.ndarray:
        """The constant guess at a set: the mean of the sets' distributions, (s + h) / (S + V · h).

        s is the sum of the token's shares over S sets, h = S / 2N what half a token is of a mean set; ½ without a set.
        """
        return _smoothed(self.shares, HALF * self.sets / self.tokens.sum() if self.sets else HALF)

    @cached_property
    def holding(self) -> np.ndarray:
        """The share of the sets that hold each token."""
        return self.holders / max(self.sets, 1)


def _smoothed(sums: np.ndarray, half: float) -> np.ndarray:
    guess = sums + half
    guess[:FIRST_TOKEN] = 0
    total = guess.sum()
    return guess / total if total else guess
