"""Random batches of full sets, with targets for a loss."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Generator, Tensor

from benchmarks.model.sizes import Sizes
from nest_model.data.packed import PackedBatch
from schemas.tables.vocab import SPECIALS

READ_SHARE = 0.20  # of the rows have a loss under protocol C, as many as MLM masks
MEAN_DAYS_BETWEEN_SETS = 60.0


@dataclass(frozen=True)
class BenchmarkBatch:
    """One batch, a target for every row ([CLS] rows too), and the rows with a loss under protocol C."""

    batch: PackedBatch
    targets: Tensor  # i64 [rows]
    read_rows: Tensor  # i64 [READ_SHARE of rows], rising

    def to(self, device: torch.device) -> Self:
        """Return the batch with every tensor on `device`."""
        return type(self)(self.batch.to(device), self.targets.to(device), self.read_rows.to(device))


def draw(sizes: Sizes, generator: Generator) -> BenchmarkBatch:
    """Draw events uniformly from the vocabulary and days between sets exponentially, on the CPU."""
    sets = sizes.subjects * sizes.sets
    events = sets * (sizes.set_rows - 1)
    gaps = torch.empty(sizes.subjects, sizes.sets, dtype=torch.float64)
    gaps.exponential_(1 / MEAN_DAYS_BETWEEN_SETS, generator=generator)[:, 0] = 0
    batch = PackedBatch.from_events(
        tokens=_tokens(sizes, events, generator),
        hours=torch.zeros(events),
        events_per_set=torch.full((sets,), sizes.set_rows - 1),
        sets_per_subject=torch.full((sizes.subjects,), sizes.sets),
        days=gaps.cumsum(1).flatten(),
    )
    read = torch.randperm(sizes.rows, generator=generator)[: max(round(READ_SHARE * sizes.rows), 1)]
    return BenchmarkBatch(batch, _tokens(sizes, sizes.rows, generator), read.sort().values)


def _tokens(sizes: Sizes, count: int, generator: Generator) -> Tensor:
    return torch.randint(len(SPECIALS), sizes.vocab_size, (count,), generator=generator)
