"""The environment torchrun sets for each process ("rank"); without torchrun there is one rank, 0."""

import os


def is_active() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def rank() -> int:
    return _read_int("RANK", 0)


def ranks() -> int:
    return _read_int("WORLD_SIZE", 1)


def ranks_here() -> int:
    """Return the number of ranks on this machine."""
    return _read_int("LOCAL_WORLD_SIZE", 1)


def _read_int(name: str, default: int) -> int:
    return int(os.environ[name]) if is_active() else default
