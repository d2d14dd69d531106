"""Types of command-line arguments that several benchmarks take."""

import argparse

from schemas.errors import NestError
from schemas.seeds import read_seed


def count(text: str) -> int:
    """Read a positive whole number."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError("must be a positive whole number")
    return int(text)


def seed(text: str) -> int:
    """Read a seed, which torch and NumPy both take."""
    try:
        return read_seed(text)
    except NestError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
