"""What the command lines of several benchmarks share: types of arguments, and how a resumable one ends."""

import argparse
import sys
from collections.abc import Callable
from functools import wraps

from schemas.errors import NestError
from schemas.seeds import read_seed

Main = Callable[[list[str] | None], int]


def resumable(main: Main) -> Main:
    """Let a `main` that resumes where it stopped end with one line on an error (status 2) and on Ctrl-C (130)."""

    @wraps(main)
    def with_clear_end(arguments: list[str] | None = None) -> int:
        try:
            return main(arguments)
        except (NestError, OSError) as error:
            sys.stderr.write(f"error: {error}\n")
            return 2
        except KeyboardInterrupt:
            sys.stderr.write("stopped; run again to continue.\n")
            return 130

    return with_clear_end


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
