"""Histories as rows of tokens for BERT: [CLS], then the products of the latest baskets; free of torch."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from nest_model.data.seqsets import expand_ranges, offsets_of
from nest_model.next_set.baskets import Baskets
from nest_model.next_set.ranking import TieOrder

UNK, CLS, MASK = range(3)
FIRST = 3
"""The token of the most popular product; the others follow by popularity."""


@dataclass(frozen=True)
class ProductTokens:
    """Which products have a token of their own."""

    token_of_item: np.ndarray  # i64 [products], UNK for a product without
    item_of_token: np.ndarray  # i64 [tokens - FIRST], the product of each token from FIRST on

    @classmethod
    def of(cls, baskets: Baskets, min_count: int) -> Self:
        """Give a token to each product that at least so many of these baskets hold."""
        counts = np.bincount(baskets.items, minlength=baskets.products)
        by_popularity = np.argsort(TieOrder.by_popularity(counts).place)
        items = by_popularity[counts[by_popularity] >= min_count]
        token_of_item = np.full(baskets.products, UNK, dtype=np.int64)
        token_of_item[items] = FIRST + np.arange(len(items))
        return cls(token_of_item, items)

    def __len__(self) -> int:
        return FIRST + len(self.item_of_token)


@dataclass(frozen=True)
class BertRows:
    """The rows of some users: [CLS] at position 0, then each line at its basket's position, from 1."""

    tokens: np.ndarray  # i64 [rows]
    positions: np.ndarray  # i64 [rows]
    offsets: np.ndarray  # i64 [users + 1]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """The number of rows of each user, i64 [users]."""
        return np.diff(self.offsets)

    @property
    def user_of_row(self) -> np.ndarray:
        """The place of each row's user, i64 [rows]."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def take(self, users: np.ndarray) -> Self:
        """Return the users at these places, in the order given."""
        lengths = self.lengths[users]
        rows = expand_ranges(self.offsets[users], lengths)
        return type(self)(self.tokens[rows], self.positions[rows], offsets_of(lengths))


def latest(baskets: Baskets, lines: int) -> Baskets:
    """Return every user's latest baskets that together hold at most so many lines, and always the last basket."""
    ends = np.repeat(baskets.item_offsets[baskets.basket_offsets[1:]], baskets.lengths)
    lines_from_here = ends - baskets.item_offsets[:-1]
    is_kept = (lines_from_here <= lines) | (baskets.baskets_since == 0)
    return baskets.last(np.bincount(baskets.user_of_basket[is_kept], minlength=len(baskets)))


def rows_of(baskets: Baskets, tokens: ProductTokens, *, with_query: bool) -> BertRows:
    """Return the rows of these baskets.

    Args:
        with_query: end each user's rows with one [MASK] at the position of the next basket.
    """
    user = baskets.user_of_line.astype(np.int64)
    lengths = baskets.lines_of_user + 1 + with_query
    offsets = offsets_of(lengths)
    all_tokens = np.full(offsets[-1], CLS, dtype=np.int64)
    positions = np.zeros(offsets[-1], dtype=np.int64)
    rows = np.arange(len(user)) + user * (1 + with_query) + 1
    all_tokens[rows] = tokens.token_of_item[baskets.items]
    basket = baskets.basket_of_line
    positions[rows] = basket - baskets.basket_offsets[user] + 1
    if with_query:
        all_tokens[offsets[1:] - 1] = MASK
        positions[offsets[1:] - 1] = baskets.lengths + 1
    return BertRows(all_tokens, positions, offsets)
