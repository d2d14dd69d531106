"""Identifiers in the ranges of MIMIC-IV: unique over all blocks, and revealing no order."""

import numpy as np

from pipelines.synthetic.catalog import Ints

BLOCK_PATIENTS = 1_000
_STRIDE, _PRIME = 7_368_787, 9_999_991  # a permutation of 0 … _PRIME − 1
_STAYS, _ROWS = 16_384, 8_000_000  # room for each block


def subject_ids(block: int, index: Ints) -> Ints:
    """Return subject ids between 10,000,000 and 19,999,990."""
    return np.asarray(10_000_000 + (block * BLOCK_PATIENTS + index + 1) * _STRIDE % _PRIME)


def hadm_ids(block: int, index: Ints) -> Ints:
    """Return stay ids between 20,000,000 and 29,999,990."""
    return np.asarray(20_000_000 + (block * _STAYS + index + 1) * _STRIDE % _PRIME)


def row_ids(block: int, index: Ints) -> Ints:
    """Return ids of rows (labevent_id, specimen_id, pharmacy_id), ascending within the block."""
    return np.asarray(block * _ROWS + index + 1)
