"""What torchrun tells each process it starts, a "rank"; without torchrun there is one, the first."""

import os


def started() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def rank() -> int:
    return _told("RANK", 0)


def ranks() -> int:
    return _told("WORLD_SIZE", 1)


def ranks_here() -> int:
    """Return how many of the ranks are on this machine."""
    return _told("LOCAL_WORLD_SIZE", 1)


def _told(name: str, without: int) -> int:
    return int(os.environ[name]) if started() else without
