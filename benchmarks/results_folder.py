"""The flag `--out` of a benchmark: a folder with somebody else's files is refused before the hours of work."""

import argparse
from pathlib import Path

from schemas.errors import InputError
from schemas.io.outputs import refuse_foreign_folder


def add_out(flags: argparse.ArgumentParser, about: str) -> None:
    """Add `--out`, which is refused where it holds files that were not made here, or were changed since."""
    flags.add_argument("--out", type=_results_folder, required=True, help=about)


def _results_folder(text: str) -> Path:
    folder = Path(text)
    try:
        refuse_foreign_folder(folder)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return folder
