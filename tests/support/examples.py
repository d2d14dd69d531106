"""How many examples a test of random input tries."""

from hypothesis import settings

OF_THE_LONG_SUITE = 100
FEWEST = 3  # the first is always the simplest, in which nothing is random


def examples(most: int) -> int:
    """Return how many examples a test tries: `most` in the long suite, and every day as small a part of it as
    Hypothesis's own number is of the long suite's, but three at least.
    """
    return max(min(most, FEWEST), most * settings.default.max_examples // OF_THE_LONG_SUITE)
