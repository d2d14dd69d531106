"""The counts of predictions on an audit's page: one set may lie within another, and a reader can subtract.

A code is one of a kind, and the first code of a stay is one of its codes. So a count is shown only if no prediction, or
those of eleven patients, are left of a set without another within it, or without several that exclude one another.
"""

from collections.abc import Iterator

import numpy as np

from schemas.suppress import SMALLEST_SHOWN, WITHHELD, is_small, suppress_count

ALL, NEARLY_ALL, MOST = "all", "nearly all", "most"


class NestedCounts:
    """The sets of predictions whose counts are shown, the first of two that reveal a third; that of all is shown."""

    def __init__(self, subject_id: np.ndarray, *, is_total_shown: bool = True) -> None:
        """Begin with no set; `subject_id` is that of each prediction.

        Args:
            is_total_shown: the page shows how many predictions there are; else a set of most of them has words instead.
        """
        self._subject_id = subject_id
        self._is_total_shown = is_total_shown
        self._sets: list[np.ndarray] = []
        self._small_sets: list[np.ndarray] = []
        self._vague_sets: list[np.ndarray] = []  # nearly all predictions: how many is not told

    def text(self, is_inside: np.ndarray) -> str:
        """Return how many predictions a set has, bool [predictions], as text."""
        text = suppress_count(int(np.count_nonzero(is_inside)), len(is_inside))
        alike = {">": self._vague_sets, "<": self._small_sets}.get(text[0], self._sets)
        if any(self._is_of_few(rest) for rest in self._rests(is_inside, alike)):
            return WITHHELD
        alike.append(is_inside)
        if self._is_total_shown:
            return text
        if is_inside.all():
            return ALL
        if text[0] == ">":
            return NEARLY_ALL
        return MOST if 2 * np.count_nonzero(is_inside) > len(is_inside) else text

    def _rests(self, is_inside: np.ndarray, alike: list[np.ndarray]) -> Iterator[np.ndarray]:
        """Yield what could be counted by subtraction if the count of this set were shown among those of its size."""
        sides = [is_inside, ~is_inside]
        many = [np.count_nonzero(side) >= SMALLEST_SHOWN for side in sides]
        # that few predictions are on one side is all that a text says, unless few are on both
        yield from (side for side, is_many in zip(sides, many, strict=True) if is_many or not any(many))
        shown_sets = [*self._sets, *self._small_sets, *self._vague_sets]
        for other in shown_sets:
            if _contains(other, is_inside):
                yield other & ~is_inside
            elif _contains(is_inside, other):
                yield is_inside & ~other
        everyone = [] if alike is self._vague_sets else [np.ones_like(is_inside)]
        for outer in (*shown_sets, is_inside, *everyone):
            if _contains(outer, is_inside):
                yield _rest(outer, [is_inside, *self._sets, *self._small_sets])
                if alike is self._sets:
                    yield _rest(outer, [is_inside, *self._sets])

    def _is_of_few(self, rows: np.ndarray) -> bool:
        return is_small(len(np.unique(self._subject_id[rows])))


def _contains(outer: np.ndarray, inner: np.ndarray) -> bool:
    return not (inner & ~outer).any()


def _rest(outer: np.ndarray, sets: list[np.ndarray]) -> np.ndarray:
    """Return what is left of a set without those within it that exclude one another; nothing where under two do."""
    first, *others = sets
    parts = [first] if not _contains(first, outer) else []
    union = np.logical_or.reduce([*parts, np.zeros_like(outer)])
    for part in sorted(others, key=np.count_nonzero, reverse=True):
        if _contains(outer, part) and not _contains(part, outer) and not (part & union).any():
            parts.append(part)
            union = union | part
    return outer & ~union if len(parts) > 1 else np.zeros_like(outer)
