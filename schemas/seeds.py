"""The seeds of a training: one, or several; for several, reports show mean and spread."""

from schemas.errors import NestError

DEFAULT = 42
LARGEST = 2**31 - 1
"""The largest seed LightGBM accepts."""


def read_seeds(text: str) -> tuple[int, ...]:
    """Parse comma-separated seeds.

    Raises:
        NestError: a value is not a seed, or is listed twice.
    """
    seeds = tuple(read_seed(part.strip()) for part in text.split(","))
    duplicates = [seed for place, seed in enumerate(seeds) if seed in seeds[:place]]
    if duplicates:
        raise NestError(f"seed {duplicates[0]} is named twice; name each seed once.")
    return seeds


def read_seed(text: str) -> int:
    """Parse one seed.

    Raises:
        NestError: it is not a whole number from 0 to `LARGEST`.
    """
    if not (text.isascii() and text.isdigit()) or int(text) > LARGEST:
        raise NestError(
            f"{text!r} is not a seed; write a whole number from 0 to {LARGEST:,}, or several separated by commas."
        )
    return int(text)


def seeds_of(seed: int | None, seeds: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the seeds to train with, given `seed`, `seeds` or both; the default if neither is given.

    Raises:
        NestError: `seed` is not the first of `seeds`.
    """
    if seeds is None:
        return (DEFAULT if seed is None else seed,)
    if seed not in (None, seeds[0]):
        raise NestError(
            f"seed {seed} is not the first of the seeds {', '.join(map(str, seeds))}; leave it out, or name it first."
        )
    return seeds
