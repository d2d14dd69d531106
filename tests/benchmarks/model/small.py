"""Small sizes, all different, so that a formula with the wrong size fails."""

import torch

from benchmarks.model.sets import BenchmarkBatch, draw
from benchmarks.model.sizes import Sizes

SMALL = Sizes(subjects=2, sets=5, set_rows=6, vocab_size=50, d_model=24, heads=3, d_ff=20, layers=2, window=4)
CPU = torch.device("cpu")


def random_batch(sizes: Sizes = SMALL, seed: int = 0) -> BenchmarkBatch:
    return draw(sizes, torch.Generator().manual_seed(seed))
