"""Small vectorised helpers: random streams by name, and arithmetic over runs of equal patients."""

import zlib

import numpy as np

from pipelines.synthetic.catalog import Bools, Floats, Ints


def stream(seed: int, block: int, purpose: str) -> np.random.Generator:
    """Return the random stream of one purpose in one block: whatever else is drawn, its numbers stay."""
    return np.random.default_rng([seed, block, zlib.crc32(purpose.encode())])


def sigmoid(logit: Floats) -> Floats:
    return 1 / (1 + np.exp(-logit))


def logit(share: Floats) -> Floats:
    return np.log(share / (1 - share))


def one_of(weights: Floats, rng: np.random.Generator) -> Ints:
    """Draw one column per row with probability in proportion to its weight; weights [rows, columns]."""
    cumulative = np.cumsum(weights, axis=1)
    return np.asarray((rng.random((len(weights), 1)) * cumulative[:, -1:] >= cumulative).sum(axis=1))


def running_sum(values: Floats, ordinal: Ints) -> Floats:
    """Sum along axis 0 within each run; a run starts where ordinal is 0."""
    total = np.cumsum(values, axis=0)
    first = np.arange(len(values)) - ordinal
    return np.asarray(total - total[first] + values[first])


def shift_rows(values: Floats, ordinal: Ints, by: int) -> Floats:
    """Return the value `by` rows earlier in the same run, NaN where there is none."""
    earlier = np.full_like(values, np.nan)
    has = ordinal >= by
    earlier[has] = values[np.flatnonzero(has) - by]
    return earlier


def any_before(flags: Bools, ordinal: Ints) -> Bools:
    """Return whether the flag was up in any earlier row of the same run; flags [rows] or [rows, columns]."""
    counts = flags.astype(np.float64)
    return np.asarray(running_sum(counts, ordinal) - counts > 0)


def spread(counts: Ints) -> tuple[Ints, Ints]:
    """Return (owner, index within the owner) of `counts.sum()` children."""
    owner = np.repeat(np.arange(len(counts)), counts)
    start = np.cumsum(counts) - counts
    return owner, np.arange(len(owner)) - start[owner]
