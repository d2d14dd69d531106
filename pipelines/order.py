"""The order of rows by several whole numbers."""

from collections.abc import Iterator, Sequence

import numpy as np

_DIGIT_BITS = 16  # as wide as numpy sorts by counting


def order_of(keys: Sequence[np.ndarray]) -> np.ndarray:
    """Return the order of rows by their keys, the first one foremost; equal rows stay in the order they came in.

    The same as `np.lexsort`, several times as fast: numpy sorts 16-bit numbers by counting, at 5 ns a row where it
    compares others at 70. A key takes as many bits as it has steps between its least and its greatest value: seconds,
    where times in microseconds hold no more.

    Args:
        keys: i64 [rows] each, at least one.
    """
    order = np.arange(len(keys[0]))
    for digit in _digits(keys):
        order = np.take(order, np.argsort(digit[order], kind="stable"))
    return order


def _digits(keys: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the bits of all keys in a row as digits, u16 [rows] each, the least significant first."""
    digit, filled = np.zeros(len(keys[0]), dtype=np.uint16), 0
    for key in reversed(keys):
        steps = _steps(key)
        bits = int(steps.max(initial=0)).bit_length()
        while bits > 0:
            digit |= (steps << np.uint64(filled)).astype(np.uint16)  # what is beyond 16 bits falls off
            taken = min(bits, _DIGIT_BITS - filled)
            steps = steps >> np.uint64(taken)
            bits, filled = bits - taken, filled + taken
            if filled == _DIGIT_BITS:
                yield digit
                digit, filled = np.zeros_like(digit), 0
    if filled:
        yield digit


def _steps(key: np.ndarray) -> np.ndarray:
    """Return how many steps each value lies above the least, u64 [rows]; the step is their greatest common divisor."""
    if not len(key):
        return key.astype(np.uint64)
    above: np.ndarray = key.astype(np.uint64) - key.min().astype(np.uint64)  # wraps around to what is right
    step = np.gcd.reduce(above)
    return above // step if step > 1 else above
