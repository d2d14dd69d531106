"""How many examples a test of random input tries."""

from hypothesis import settings

OF_THE_LONG_SUITE = 100


def examples(most: int) -> int:
    """Return `most` in the long suite, every day as large a share of it as the profile in use has of the long one's."""
    return max(1, most * settings.default.max_examples // OF_THE_LONG_SUITE)
