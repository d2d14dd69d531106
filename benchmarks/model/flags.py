"""The flags both commands know."""

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from benchmarks.model.models import MODELS
from benchmarks.model.protocols import PROTOCOLS
from benchmarks.model.sizes import Sizes
from schemas.errors import NestError


def parser(module: str, description: str, name: str) -> argparse.ArgumentParser:
    """Return a parser of sizes, models, device and files; `name` is of the files by default."""
    flags = argparse.ArgumentParser(
        prog=f"python -m benchmarks.model.{module}",
        description=description,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    for field in fields(Sizes):
        flags.add_argument(f"--{field.name.replace('_', '-')}", type=int, default=field.default)
    flags.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="MODEL")
    flags.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    flags.add_argument("--threads", type=int, default=1, help="of the CPU")
    flags.add_argument("--out", type=Path, required=True, help="folder of what is written")
    flags.add_argument("--name", default=name, help="of the files")
    return flags


def sizes_of(given: argparse.Namespace, **changes: Any) -> Sizes:
    """Return the sizes asked for."""
    return Sizes(**{field.name: getattr(given, field.name) for field in fields(Sizes)} | changes)


def ready(given: argparse.Namespace) -> torch.device:
    """Return the device asked for, its threads set and TF32 off.

    Raises:
        NestError: no CUDA device where one was asked for.
    """
    if given.device == "cuda" and not torch.cuda.is_available():
        raise NestError("--device cuda: torch sees no CUDA device here; use --device cpu.")
    torch.set_num_threads(given.threads)
    torch.set_float32_matmul_precision("highest")
    torch.manual_seed(0)
    on_cuda = given.device != "cpu" and torch.cuda.is_available()
    return torch.device("cuda" if on_cuda else "cpu")


def protocol_names(text: str) -> list[str]:
    """Read `ABCD` or a part of it."""
    if unknown := set(text) - set(PROTOCOLS):
        raise argparse.ArgumentTypeError(f"{sorted(unknown)} unknown; known are {', '.join(PROTOCOLS)}")
    return list(text)
