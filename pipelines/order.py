"""The order of rows by several whole numbers, by comparing as few numbers as will do."""

from collections.abc import Sequence

import numpy as np

_BITS = 64


def order_of(keys: Sequence[np.ndarray]) -> np.ndarray:
    """Return the order of rows by their keys, the first one foremost; of rows equal in all of them, any.

    As many keys as fit 64 bits together are sorted as one number, which numpy does several times as fast as
    `np.lexsort` goes through the keys; what is left decides among the rows that are equal so far.

    Args:
        keys: i64 [rows] each.
    """
    packed, rest = pack(keys)
    if len(rest) > 0 and len(rest) == len(keys) - 1:
        return np.lexsort(list(reversed(keys)))
    order = np.argsort(packed)
    if not rest:
        return order
    placed = packed[order]
    group = np.zeros(len(placed), dtype=np.int64)
    np.cumsum(placed[1:] != placed[:-1], out=group[1:])
    return np.take(order, order_of([group, *(key[order] for key in rest)]))


def order_of_runs(keys: Sequence[np.ndarray]) -> np.ndarray:
    """Return the order of rows by their keys; equal rows stay in the order they came in.

    Quick where the rows are a few runs, each in order already.

    Args:
        keys: i64 [rows] each, the first one foremost.
    """
    packed, rest = pack(keys)
    return np.lexsort(list(reversed(keys))) if rest else np.argsort(packed, kind="stable")


def pack(keys: Sequence[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return one number for each row, u64 [rows], that orders as the leading keys do, and the keys left over.

    A key takes as many bits as it has steps between its least and its greatest value: seconds, where times in
    microseconds hold no more.
    """
    packed, taken, rest = np.zeros(len(keys[0]), dtype=np.uint64), 0, list(keys)
    while rest:
        steps = _steps(rest[0])
        bits = int(steps.max(initial=0)).bit_length()
        if taken + bits > _BITS:
            break
        packed = (packed << np.uint64(bits)) | steps if taken else steps
        taken += bits
        rest.pop(0)
    return packed, rest


def _steps(key: np.ndarray) -> np.ndarray:
    """Return how many steps each value lies above the least, u64 [rows]; the step is their greatest common divisor."""
    if not len(key):
        return key.astype(np.uint64)
    above = key.astype(np.uint64) - np.uint64(key.min().astype(np.uint64))  # wraps around to what is right
    step = np.gcd.reduce(above)
    return above // step if step > 1 else above
