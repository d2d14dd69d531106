"""One training on several ranks: what each does of a step, and what all of them must agree on.

Every rank draws the same step and does its share of it. Each takes as many turns as the others: those that hold parts
of the weights (FSDP) meet at every one.
"""

import bisect
import math
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from lightning_fabric import Fabric

from nest_model.data.packed import micro_batches


def share(rows: np.ndarray, row_budget: int, fabric: Fabric) -> Iterator[tuple[slice, bool]]:
    """Yield this rank's runs of a step's examples, and whether each counts: one that does not is there for its turn.

    Args:
        rows: of each example.
        row_budget: rows of a run at most; a longer example goes alone.
    """
    return own(balanced(rows, row_budget, fabric.world_size), fabric)


def own(runs: list[slice], fabric: Fabric) -> Iterator[tuple[slice, bool]]:
    """Yield the runs that fall to this rank in turn, and whether each counts."""
    for turn in range(math.ceil(len(runs) / fabric.world_size)):
        place = turn * fabric.world_size + fabric.global_rank
        yield runs[min(place, len(runs) - 1)], place < len(runs)


def balanced(rows: np.ndarray, row_budget: int, ranks: int) -> list[slice]:
    """Cut examples into as many runs a rank as the budget asks for, the longest of them as short as can be."""

    def runs(budget: int) -> list[slice]:
        return list(micro_batches(rows, budget))

    wanted = ranks * math.ceil(len(runs(row_budget)) / ranks)
    budgets = range(int(rows.sum()) + 1)
    return runs(bisect.bisect_left(budgets, True, lo=1, key=lambda budget: len(runs(budget)) <= wanted))


def total(numbers: Mapping[str, float], fabric: Fabric) -> dict[str, float]:
    """Return the sums over all ranks, the same on each."""
    if fabric.world_size == 1:
        return dict(numbers)
    values = torch.tensor(list(numbers.values()), dtype=torch.float64, device=fabric.device)
    return dict(zip(numbers, fabric.all_reduce(values, reduce_op="sum").tolist(), strict=True))


def anywhere(fabric: Fabric, **flags: bool) -> dict[str, bool]:
    """Return which flags are up on any rank."""
    return {name: count > 0 for name, count in total(flags, fabric).items()}
