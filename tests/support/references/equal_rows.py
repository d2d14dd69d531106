"""The least loss of a system to which the equal rows of a set are one: it guesses them all alike."""

import math
from collections import Counter, defaultdict
from typing import Any


def least_loss(corrupted_batch: Any) -> float:
    """Return the mean loss where each group of equal rows of a set is guessed as its targets are spread."""
    batch, rows = corrupted_batch.batch, corrupted_batch.mlm_rows.tolist()
    targets_of_group: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    for row, target in zip(rows, corrupted_batch.mlm_targets.tolist(), strict=True):
        targets_of_group[int(batch.set_of_row[row]), int(batch.tokens[row])][target] += 1
    least = 0.0
    for targets in targets_of_group.values():
        least -= sum(count * math.log(count / targets.total()) for count in targets.values())
    return least / len(rows)
