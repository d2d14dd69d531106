"""The seeds of a training: one, or several, of which pages show the mean and the spread."""

from schemas.errors import NestError

DEFAULT = 42
LARGEST = 2**31 - 1
"""LightGBM takes no larger one."""


def read_seeds(text: str) -> tuple[int, ...]:
    """Return seeds written with commas between.

    Raises:
        NestError: one of them is not a seed, or is named twice.
    """
    seeds = tuple(read_seed(part.strip()) for part in text.split(","))
    duplicates = [seed for place, seed in enumerate(seeds) if seed in seeds[:place]]
    if duplicates:
        raise NestError(f"seed {duplicates[0]} is named twice; name each seed once.")
    return seeds


def read_seed(text: str) -> int:
    """Return a seed.

    Raises:
        NestError: it is not a whole number from 0 to the largest.
    """
    if not (text.isascii() and text.isdigit()) or int(text) > LARGEST:
        raise NestError(
            f"{text!r} is not a seed; write a whole number from 0 to {LARGEST:,}, or several with commas between."
        )
    return int(text)


def seeds_of(seed: int | None, seeds: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the seeds to train with, of one named by itself and several; of neither the default.

    Raises:
        NestError: the one is not the first of the several.
    """
    if seeds is None:
        return (DEFAULT if seed is None else seed,)
    if seed not in (None, seeds[0]):
        raise NestError(
            f"seed {seed} is not the first of the seeds {', '.join(map(str, seeds))}; leave it out, or name it first."
        )
    return seeds
