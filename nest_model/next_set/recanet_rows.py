"""The rows ReCANet learns from: for every label basket, one for each product its user had bought before. Free of torch.

A row is read as gaps: a product bought in the baskets 2 and 5 has, for basket 7, the gaps (3, 2). Gaps are never kept.
What is kept is the place of every purchase among its user's baskets, a byte each, and an index of 9 bytes a row; a
batch gathers its gaps, the longest rows first, so that a recurrent network computes no step of padding.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from pydantic import Field

from nest_model.data.seqsets import expand_ranges, offsets_of
from nest_model.next_set.baskets import Baskets
from nest_model.next_set.labels import label_blocks
from nest_model.next_set.system import NextBasketOptions


class RowOptions(NextBasketOptions):
    """What ReCANet and its hybrids learn from, and how long."""

    label_positions: int = Field(
        5,
        ge=1,
        description="How many of each user's last baskets are labels; the published program takes 50.",
    )
    gaps: int = Field(20, ge=1, description="The most gaps between purchases that a row has, the latest.")
    rate: float = Field(1e-3, gt=0, description="Learning rate of Adam.")
    batch_rows: int = Field(10_000, ge=1, description="Rows of a training step.")
    epochs: int = Field(
        5,
        ge=1,
        description="The most epochs; the best on the validation users is taken, without them the last.",
    )
    min_item_count: int = Field(
        5, ge=0, description="Products in fewer baskets than this have no row and are not recommended."
    )


@dataclass(frozen=True)
class Purchases:
    """Which of its user's baskets, counted from 0, hold each product that the user bought.

    Pair p is the product `item[p]` of the user `user[p]`, bought in the baskets
    `positions[offsets[p]:offsets[p + 1]]`.
    """

    user: np.ndarray  # i32 [pairs], ascending
    item: np.ndarray  # i32 [pairs], ascending within a user
    offsets: np.ndarray  # i64 [pairs + 1]
    positions: (
        np.ndarray
    )  # u8 [lines], ascending within a pair; wider where a history is longer than 255 baskets

    @classmethod
    def of(cls, baskets: Baskets, is_candidate: np.ndarray) -> Self:
        """Return the purchases of the candidate products.

        Args:
            is_candidate: bool [products].
        """
        width = np.min_scalar_type(int(baskets.lengths.max(initial=0)))
        place = (np.arange(len(baskets.days)) - baskets.basket_offsets[baskets.user_of_basket]).astype(width)
        lines = is_candidate[baskets.items]
        keys = (baskets.user_of_line.astype(np.int64) * baskets.products + baskets.items)[lines]
        # the lines of a user are in the order of the baskets, so a stable sort keeps positions ascending
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
        pairs = keys[starts]
        return cls(
            user=(pairs // max(baskets.products, 1)).astype(np.int32),
            item=(pairs % max(baskets.products, 1)).astype(np.int32),
            offsets=np.append(starts, len(keys)).astype(np.int64),
            positions=np.repeat(place, baskets.sizes)[lines][order],
        )


@dataclass(frozen=True)
class RepurchaseBatch:
    """Some rows, longest first, with their gaps step by step: every row's first gap, then every second, ….

    Step t has the rows `0 … row_counts[t] - 1`, as a packed sequence of torch.
    """

    item: np.ndarray  # i64 [rows]
    label: np.ndarray  # i64 [rows], which label basket
    gaps: np.ndarray  # f32 [steps]
    row_counts: np.ndarray  # i64 [longest row]
    is_bought: np.ndarray  # bool [rows], whether the label basket holds the product


@dataclass(frozen=True)
class RepurchaseRows:
    """An index of rows: which product of which user, for which label basket, after how many purchases."""

    purchases: Purchases
    label_user: np.ndarray  # i32 [labels]
    label_position: np.ndarray  # u8 or wider [labels], the number of baskets before the label basket
    pair: np.ndarray  # i32 [rows]
    label: np.ndarray  # i32 [rows]
    count: np.ndarray  # u8 or wider [rows], the purchases before the label basket

    def __len__(self) -> int:
        return len(self.pair)

    def batch(self, rows: np.ndarray, most_gaps: int) -> RepurchaseBatch:
        """Return these rows, i64 [rows], in the order of their lengths; rows of one length keep theirs."""
        lengths = np.minimum(self.count[rows].astype(np.int64), most_gaps)
        order = np.argsort(most_gaps - lengths, kind="stable")
        rows, lengths = rows[order], lengths[order]
        pair, label = self.pair[rows], self.label[rows]
        ends = self.purchases.offsets[pair] + self.count[rows]
        row_counts = np.ascontiguousarray(np.bincount(lengths, minlength=1)[::-1].cumsum()[::-1][1:])
        step = np.repeat(np.arange(len(row_counts)), row_counts)
        row = expand_ranges(np.zeros(len(row_counts), dtype=np.int64), row_counts)
        start = (ends - lengths)[row] + step
        positions = self.purchases.positions
        # after its last purchase a row waits for the label basket itself
        is_last = step == lengths[row] - 1
        following = positions[np.where(is_last, start, start + 1)].astype(np.int32)
        following = np.where(is_last, self.label_position[label][row], following)
        return RepurchaseBatch(
            item=self.purchases.item[pair].astype(np.int64),
            label=label.astype(np.int64),
            gaps=(following - positions[start]).astype(np.float32),
            row_counts=row_counts,
            is_bought=self._is_bought(pair, label, ends),
        )

    def batches(self, rows: np.ndarray, size: int, most_gaps: int) -> Iterator[RepurchaseBatch]:
        """Yield these rows, i64 [rows], in batches of at most `size`."""
        for start in range(0, len(rows), size):
            yield self.batch(rows[start : start + size], most_gaps)

    def _is_bought(self, pair: np.ndarray, label: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Return whether the purchase after those before the label basket is in it, bool [rows]."""
        positions = self.purchases.positions
        exists = ends < self.purchases.offsets[pair + 1]
        is_bought: np.ndarray = exists & (
            positions[np.minimum(ends, len(positions) - 1)] == self.label_position[label]
        )
        return is_bought


def training_rows(baskets: Baskets, is_candidate: np.ndarray, label_positions: int) -> RepurchaseRows:
    """Return the rows of each user's last `label_positions` baskets, but the first basket, which nothing precedes.

    The labels are in the order of `label_blocks`.

    Args:
        is_candidate: bool [products], those that may have rows.
    """
    purchases = Purchases.of(baskets, is_candidate)
    width = purchases.positions.dtype
    pair = np.arange(len(purchases.user), dtype=np.int32)
    # the latest purchases are left out one label basket after the other, so each pass knows all counts from the last
    count = np.diff(purchases.offsets).astype(width)
    label_users, label_places, pairs, labels, counts = [], [], [], [], []
    known_labels = 0
    for users, positions in label_blocks(baskets, label_positions):
        label_of_user = np.full(len(baskets), -1, dtype=np.int32)
        label_of_user[users] = np.arange(known_labels, known_labels + len(users), dtype=np.int32)
        known_labels += len(users)
        position_of_user = np.zeros(len(baskets), dtype=width)
        position_of_user[users] = positions
        user = purchases.user[pair]
        latest = purchases.positions[purchases.offsets[pair] + count - 1]
        count = count - (latest >= position_of_user[user]).astype(width)
        is_row = (count > 0) & (label_of_user[user] >= 0)
        pair, count = pair[is_row], count[is_row]
        label_users.append(users.astype(np.int32))
        label_places.append(positions.astype(width))
        pairs.append(pair)
        labels.append(label_of_user[user[is_row]])
        counts.append(count)
    return RepurchaseRows(
        purchases,
        _joined(label_users, np.int32),
        _joined(label_places, width),
        _joined(pairs, np.int32),
        _joined(labels, np.int32),
        _joined(counts, width),
    )


def question_rows(baskets: Baskets, is_candidate: np.ndarray) -> RepurchaseRows:
    """Return a row for each product of each user, for the basket that comes after all; label u is that of user u."""
    purchases = Purchases.of(baskets, is_candidate)
    width = purchases.positions.dtype
    return RepurchaseRows(
        purchases,
        np.arange(len(baskets), dtype=np.int32),
        baskets.lengths.astype(width),
        np.arange(len(purchases.user), dtype=np.int32),
        purchases.user,
        np.diff(purchases.offsets).astype(width),
    )


def join_users(parts: Sequence[Baskets]) -> Baskets:
    """Return the users of all parts, by ascending id; of a user in several parts, the first part's baskets."""
    subject_id = np.concatenate([part.subject_id for part in parts])
    everybody = replace(
        parts[0],
        subject_id=subject_id,
        basket_offsets=offsets_of(np.concatenate([part.lengths for part in parts])),
        item_offsets=offsets_of(np.concatenate([part.sizes for part in parts])),
        items=np.concatenate([part.items for part in parts]),
        cart_places=np.concatenate([part.cart_places for part in parts]),
        days=np.concatenate([part.days for part in parts]),
    )
    _, first = np.unique(subject_id, return_index=True)
    return everybody.take(first)


def _joined(parts: Sequence[np.ndarray], width: np.dtype | type) -> np.ndarray:
    return np.concatenate([np.empty(0, dtype=width), *parts])
