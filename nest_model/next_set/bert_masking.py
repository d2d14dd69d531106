"""What BERT guesses in a training step: masked lines, or a whole basket after its history; free of torch.

A product without a token is never guessed: [UNK] cannot be recommended.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from nest_model.data.seqsets import offsets_of
from nest_model.next_set.bert_options import Masking
from nest_model.next_set.bert_rows import FIRST, MASK, BertRows


@dataclass(frozen=True)
class MaskedRows:
    """Rows whose targets are hidden, and the targets."""

    rows: BertRows
    target_rows: np.ndarray  # i64 [targets], ascending; the [MASK] row at which each is guessed
    target_tokens: np.ndarray  # i64 [targets]

    def slice(self, first: int, end: int) -> Self:
        """Return the users `first:end`."""
        first_row, end_row = self.rows.offsets[first], self.rows.offsets[end]
        part = slice(*np.searchsorted(self.target_rows, [first_row, end_row]))
        rows = BertRows(
            self.rows.tokens[first_row:end_row],
            self.rows.positions[first_row:end_row],
            self.rows.offsets[first : end + 1] - first_row,
        )
        return type(self)(rows, self.target_rows[part] - first_row, self.target_tokens[part])


def mask_rows(rows: BertRows, masking: Masking, share: float, rng: np.random.Generator) -> MaskedRows:
    """Mask some lines of each user, or cut each history after a random basket and ask for that basket.

    Every user with a product that has a token has a target. A basket asked for leaves one [MASK], as in a query, and no
    trace of its size; it is not the user's first, if there are more.

    Args:
        share: of the lines, or of a user's products where all their lines are masked together.
    """
    users, user = len(rows), rows.user_of_row
    is_product = rows.tokens >= FIRST
    is_masked = _masked_lines(rows, is_product, share, rng, together=masking == "all_occurrences")
    is_of_question = _random_positions(rows, rng)[user] == rows.positions
    asks_basket = rng.random(users) < {"last_basket": 1.0, "joint": 0.5}.get(masking, 0.0)
    asks_basket &= np.bincount(user[is_of_question & is_product], minlength=users) > 0
    is_of_asking = asks_basket[user]
    first_asked = np.zeros(users, dtype=np.int64)
    question_rows = np.flatnonzero(is_of_question)[::-1]
    first_asked[user[question_rows]] = (
        question_rows  # of equal users the last assignment stays: the first row
    )

    is_target = is_product & np.where(is_of_asking, is_of_question, is_masked)
    guessed_at = np.where(is_of_asking, first_asked[user], np.arange(len(user)))
    is_after = rows.positions > rows.positions[first_asked][user]
    is_first_asked = guessed_at == np.arange(len(user))
    is_kept = ~is_of_asking | ~(is_after | (is_of_question & ~is_first_asked))
    hides = np.where(is_of_asking, is_of_question & is_first_asked, is_target)
    tokens = np.where(hides, MASK, rows.tokens)
    place = np.cumsum(is_kept) - 1
    visible_rows = BertRows(
        tokens[is_kept],
        rows.positions[is_kept],
        offsets_of(np.bincount(user[is_kept], minlength=users)),
    )
    return MaskedRows(visible_rows, place[guessed_at[is_target]], rows.tokens[is_target])


def _masked_lines(
    rows: BertRows, is_product: np.ndarray, share: float, rng: np.random.Generator, *, together: bool
) -> np.ndarray:
    """Return the lines to mask, bool [rows]: those with a draw below `share`, and each user's lowest draw."""
    user = rows.user_of_row
    draws = rng.random(len(user))
    if together:  # the draw of a product's first line is that of all its lines
        _, first, pair = np.unique(
            user * (int(rows.tokens.max(initial=0)) + 1) + rows.tokens, return_index=True, return_inverse=True
        )
        draws = draws[first][pair]
    draws = np.where(is_product, draws, np.inf)
    lowest = np.full(len(rows), np.inf)
    np.minimum.at(lowest, user, draws)
    is_masked: np.ndarray = is_product & ((draws < share) | (draws == lowest[user]))
    return is_masked


def _random_positions(rows: BertRows, rng: np.random.Generator) -> np.ndarray:
    """Return the position of the basket asked for of each user, i64 [users]: any but the first of several."""
    last = rows.positions[rows.offsets[1:] - 1]
    lowest = np.minimum(2, last)
    positions: np.ndarray = rng.integers(lowest, last + 1)
    return positions
