"""The order of rows by several whole numbers."""

from collections.abc import Iterator, Sequence

import numpy as np

_WORD_BITS, _DIGIT_BITS = 64, 16  # numpy sorts 16-bit numbers by counting
_ROWS_OF_A_GROUP, _ROWS_OF_A_RUN = 4, 100  # on average, from where on it pays
_MOST_PLACES_A_ROW = 4
_MOST_PLACES_A_NUMBER = 64  # a byte each


def order_of(keys: Sequence[np.ndarray]) -> np.ndarray:
    """Return the order of rows by their keys, the first one foremost; equal rows stay in the order they came in.

    The same as `np.lexsort`, several times as fast. Rows that lie together and differ in the last key alone, as the
    results of one draw do in their numbers, are moved together, and where these numbers lie close each is put in its
    place (20 ns a row). Else a key takes as many bits as it has steps between its least and its greatest value:
    seconds, where times in microseconds hold no more. Where all keys fit one 64-bit number and the rows are runs in
    order already, these are merged (3 ns a row); else they are sorted digit by digit, each by counting (5 ns a row and
    digit), where to compare numbers would take 70.

    Args:
        keys: i64 [rows] each, at least one.
    """
    by_group = _order_by_group(keys)
    return _order_by_row(keys) if by_group is None else by_group


def all_differ(numbers: np.ndarray) -> bool:
    """Return whether no two of these, i64 [rows], are equal; false where they lie too far apart to see (5 ns a row)."""
    if not len(numbers):
        return True
    places = int(numbers.max()) - int(numbers.min()) + 1
    if places > _MOST_PLACES_A_NUMBER * len(numbers):
        return False
    seen = np.zeros(places, dtype=bool)
    seen[numbers - numbers.min()] = True
    return int(np.count_nonzero(seen)) == len(numbers)


def _order_by_group(keys: Sequence[np.ndarray]) -> np.ndarray | None:
    """Return the order of rows in groups that differ in their last key, numbers, alone; None where it does not pay."""
    *foremost, numbers = keys
    starts = _starts(foremost, len(numbers))
    if not foremost or len(starts) * _ROWS_OF_A_GROUP >= len(numbers) or _places(numbers, starts) is None:
        return None
    firsts = [key[starts] for key in foremost]
    order = order_of(firsts)
    rows = np.diff(starts, append=len(numbers))[order]
    starts_in_order = rows.cumsum() - rows
    by_group = np.repeat(starts[order] - starts_in_order, rows) + np.arange(len(numbers))
    numbers = np.take(numbers, by_group)
    # groups that lay apart and are alike in these keys are one now
    starts = starts_in_order[_starts([key[order] for key in firsts], len(order))]
    places = _places(numbers, starts)
    if places is None:
        return None
    least, first_places, number_of_places = places
    row_at = np.full(number_of_places, -1)
    row_at[numbers - np.repeat(least - first_places, np.diff(starts, append=len(numbers)))] = by_group
    found = row_at[row_at >= 0]
    return found if len(found) == len(numbers) else None  # else some have a number in common


def _starts(keys: Sequence[np.ndarray], rows: int) -> np.ndarray:
    """Return the rows in which a key is not what it was in the row before, the first row among them."""
    starts = np.zeros(rows, dtype=bool)
    starts[:1] = True
    for key in keys:
        starts[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(starts)


def _places(numbers: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray, int] | None:
    """Return the least number of each group, its place, and how many places there are from each group's least to most.

    None where these are too many to be worth it, or too few for all of a group's numbers to differ.
    """
    least, most = np.minimum.reduceat(numbers, starts), np.maximum.reduceat(numbers, starts)
    steps = most.astype(np.uint64) - least.astype(np.uint64)  # wraps around to what is right
    number = float(steps.sum(dtype=np.float64)) + len(starts)
    if not len(numbers) <= number <= _MOST_PLACES_A_ROW * len(numbers):
        return None
    ends = (steps.astype(np.int64) + 1).cumsum()
    return least, np.append(0, ends[:-1]), int(ends[-1])


def _order_by_row(keys: Sequence[np.ndarray]) -> np.ndarray:
    words = list(_words(keys))
    if len(words) == 1 and _is_few_runs(words[0][0]):
        return np.argsort(words[0][0], kind="stable")
    order = np.arange(len(keys[0]))
    for word, bits in words:
        for shift in range(0, bits, _DIGIT_BITS):
            digit = (word >> np.uint64(shift)).astype(np.uint16)  # what is beyond 16 bits falls off
            order = np.take(order, np.argsort(digit[order], kind="stable"))
    return order


def _is_few_runs(word: np.ndarray) -> bool:
    return int(np.count_nonzero(word[1:] < word[:-1])) * _ROWS_OF_A_RUN <= len(word)


def _words(keys: Sequence[np.ndarray]) -> Iterator[tuple[np.ndarray, int]]:
    """Yield the bits of all keys in a row as u64 [rows] and how many there are, the least significant first."""
    word, filled = np.zeros(len(keys[0]), dtype=np.uint64), 0
    for key in reversed(keys):
        steps = _steps(key)
        bits = int(steps.max(initial=0)).bit_length()
        word |= steps << np.uint64(filled)
        if filled + bits > _WORD_BITS:
            yield word, _WORD_BITS
            word, filled = steps >> np.uint64(_WORD_BITS - filled), filled - _WORD_BITS
        filled += bits
    yield word, filled


def _steps(key: np.ndarray) -> np.ndarray:
    """Return how many steps each value lies above the least, u64 [rows]; the step is their greatest common divisor."""
    if not len(key):
        return key.astype(np.uint64)
    above: np.ndarray = key.astype(np.uint64) - key.min().astype(np.uint64)  # wraps around to what is right
    step = np.gcd.reduce(above)
    return above // step if step > 1 else above
