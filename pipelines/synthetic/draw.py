"""Vectorised helpers: named random streams, and arithmetic over runs of rows of the same patient."""

import zlib

import numpy as np

from pipelines.synthetic.catalog import Bools, Floats, Ints


def stream(seed: int, block: int, purpose: str) -> np.random.Generator:
    """Return the random stream for a purpose in a block; its numbers do not depend on other draws."""
    return np.random.default_rng([seed, block, zlib.crc32(purpose.encode())])


def sigmoid(logit: Floats) -> Floats:
    return 1 / (1 + np.exp(-logit))


def logit(share: Floats) -> Floats:
    return np.log(share / (1 - share))


def draw_column(weights: Floats, rng: np.random.Generator) -> Ints:
    """Draw one column per row with probability proportional to its weight; weights [rows, columns]."""
    cumulative = np.cumsum(weights, axis=1)
    return np.asarray((rng.random((len(weights), 1)) * cumulative[:, -1:] >= cumulative).sum(axis=1))


def running_sum(values: Floats, ordinal: Ints) -> Floats:
    """Return the cumulative sum along axis 0 within each run; a run starts where ordinal is 0."""
    total = np.cumsum(values, axis=0)
    first = np.arange(len(values)) - ordinal
    return np.asarray(total - total[first] + values[first])


def shift_rows(values: Floats, ordinal: Ints, by: int) -> Floats:
    """Return the value `by` rows earlier in the same run, NaN if there is none."""
    earlier = np.full_like(values, np.nan)
    has_earlier = ordinal >= by
    earlier[has_earlier] = values[np.flatnonzero(has_earlier) - by]
    return earlier


def any_before(flags: Bools, ordinal: Ints) -> Bools:
    """Return whether the flag was set in an earlier row of the same run; flags [rows] or [rows, columns]."""
    counts = flags.astype(np.float64)
    return np.asarray(running_sum(counts, ordinal) - counts > 0)


def expand_counts(counts: Ints) -> tuple[Ints, Ints]:
    """Return owner and index within the owner for `counts.sum()` children."""
    owner = np.repeat(np.arange(len(counts)), counts)
    start = np.cumsum(counts) - counts
    return owner, np.arange(len(owner)) - start[owner]
