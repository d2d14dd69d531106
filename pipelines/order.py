"""The order of rows by several whole numbers."""

from collections.abc import Iterator, Sequence

import numpy as np

_WORD_BITS, _DIGIT_BITS = 64, 16  # numpy sorts 16-bit numbers by counting
_ROWS_OF_A_RUN = 100


def order_of(keys: Sequence[np.ndarray]) -> np.ndarray:
    """Return the order of rows by their keys, the first one foremost; equal rows stay in the order they came in.

    The same as `np.lexsort`, several times as fast. A key takes as many bits as it has steps between its least and
    its greatest value: seconds, where times in microseconds hold no more. Where all keys fit one 64-bit number and
    the rows are runs in order already, these are merged (3 ns a row); else they are sorted digit by digit, each by
    counting (5 ns a row), where to compare numbers would take 70.

    Args:
        keys: i64 [rows] each, at least one.
    """
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
