"""Split the steps of a training over several ranks, and sum over them.

Every rank draws the same step and does its share. All ranks take the same number of turns, because ranks with sharded
weights (FSDP) synchronise at each turn.
"""

import bisect
import math
from collections.abc import Iterator, Mapping
from typing import cast

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from nest_model.data.packed import micro_batches


def split_step(rows: np.ndarray, row_budget: int, fabric: Fabric) -> Iterator[tuple[slice, bool]]:
    """Yield this rank's runs of a step's examples, and whether each is its own; other runs are dummies.

    Args:
        rows: i64 [examples].
        row_budget: maximum rows of a run; a longer example is a run of its own.
    """
    return runs_of_rank(balanced_runs(rows, row_budget, fabric.world_size), fabric)


def runs_of_rank(runs: list[slice], fabric: Fabric) -> Iterator[tuple[slice, bool]]:
    """Assign runs to the ranks in turn; yield this rank's runs, and whether each is its own or a dummy."""
    for turn in range(math.ceil(len(runs) / fabric.world_size)):
        place = turn * fabric.world_size + fabric.global_rank
        yield runs[min(place, len(runs) - 1)], place < len(runs)


def balanced_runs(rows: np.ndarray, row_budget: int, ranks: int) -> list[slice]:
    """Cut examples into as many runs per rank as the budget needs, with the longest run as short as possible."""

    def runs(budget: int) -> list[slice]:
        return list(micro_batches(rows, budget))

    num_runs = ranks * math.ceil(len(runs(row_budget)) / ranks)
    budgets = range(int(rows.sum()) + 1)
    return runs(bisect.bisect_left(budgets, True, lo=1, key=lambda budget: len(runs(budget)) <= num_runs))


def sum_over_ranks(numbers: Mapping[str, float], fabric: Fabric) -> dict[str, float]:
    """Return each number's sum over all ranks; every rank gets the result."""
    if fabric.world_size == 1:
        return dict(numbers)
    values = torch.tensor(list(numbers.values()), dtype=torch.float64, device=fabric.device)
    sums = cast("Tensor", fabric.all_reduce(values, reduce_op="sum"))
    return dict(zip(numbers, sums.tolist(), strict=True))


def flags_on_any_rank(fabric: Fabric, **flags: bool) -> dict[str, bool]:
    """Return for each flag whether it is set on any rank."""
    return {name: count > 0 for name, count in sum_over_ranks(flags, fabric).items()}
