"""The seeds of a training: one, or several whose scores are told as a mean and its spread."""

from schemas.errors import NestError

DEFAULT = 42
LARGEST = 2**31 - 1
"""LightGBM takes no larger one."""


def read_seeds(text: str) -> tuple[int, ...]:
    """Return seeds written with commas between.

    Raises:
        NestError: one of them is no seed, or is there twice.
    """
    seeds = tuple(read_seed(part.strip()) for part in text.split(","))
    if twice := [seed for place, seed in enumerate(seeds) if seed in seeds[:place]]:
        raise NestError(f"seed {twice[0]} is there twice; write each once.")
    return seeds


def read_seed(text: str) -> int:
    """Return a seed.

    Raises:
        NestError: it is no whole number, or one below 0 or above the largest.
    """
    if not (text.isascii() and text.isdigit()) or int(text) > LARGEST:
        raise NestError(
            f"{text!r} is no seed; a seed is a whole number from 0 to {LARGEST:,}, several with commas between."
        )
    return int(text)


def seeds_of(seed: int | None, seeds: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the seeds that a seed and several mean together; neither: the default.

    Raises:
        NestError: they contradict each other.
    """
    if seeds is None:
        return (DEFAULT if seed is None else seed,)
    if seed not in (None, seeds[0]):
        raise NestError(
            f"seed {seed} is not the first of the seeds {', '.join(map(str, seeds))}; leave it out, or write it first."
        )
    return seeds
