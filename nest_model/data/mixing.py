"""A hash of whole numbers, for random choices that depend on nothing but a patient and a seed."""

import numpy as np


def bits(numbers: np.ndarray) -> np.ndarray:
    """Return whole numbers as their bits, u64 [any]."""
    return numbers.astype(np.int64).view(np.uint64)


def mix(numbers: np.ndarray) -> np.ndarray:
    """Return a hash of whole numbers, u64 [any]: a step of SplitMix64 (Steele, Lea and Flood 2014)."""
    values = bits(numbers) + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixture: np.ndarray = values ^ (values >> np.uint64(31))
    return mixture


def is_in_share(names: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Return which names a share has by a hash of each and the seed, bool [names]; a larger share has them too."""
    place = mix(mix(np.full(len(names), seed)) ^ bits(names)) / 2.0**64
    in_share: np.ndarray = place < share
    return in_share
