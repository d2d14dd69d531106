"""The command-line flags that Table 1 and the scaling benchmark share."""

import argparse
from dataclasses import fields
from typing import Any

import torch

from benchmarks.model.models import MODELS
from benchmarks.model.protocols import PROTOCOLS
from benchmarks.model.sizes import Sizes
from benchmarks.results_folder import add_out
from schemas.errors import NestError


def parser(module: str, description: str, name: str) -> argparse.ArgumentParser:
    """Return a parser of sizes, models, device and files; `name` is the default name of the files."""
    flags = argparse.ArgumentParser(
        prog=f"python -m benchmarks.model.{module}",
        description=description,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    for field in fields(Sizes):
        flags.add_argument(
            f"--{field.name.replace('_', '-')}", type=int, default=field.default, help=_SIZE_HELP[field.name]
        )
    flags.add_argument(
        "--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="MODEL", help="models to measure"
    )
    flags.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="device to measure on"
    )
    flags.add_argument("--threads", type=int, default=1, help="number of CPU threads")
    add_out(flags, "folder of the report")
    flags.add_argument("--name", default=name, help="name of the report's files")
    return flags


_SIZE_HELP = {
    "subjects": "patients per batch",
    "sets": "sets per patient",
    "set_rows": "rows per set, with its [CLS] row",
    "vocab_size": "tokens of the vocabulary",
    "d_model": "width of the model",
    "heads": "attention heads",
    "d_ff": "width of the feed-forward layers",
    "layers": "layers of the model",
    "window": "keys per query in Longformer's window",
}


def sizes_of(options: argparse.Namespace, **changes: Any) -> Sizes:
    """Return the sizes of the command line, with changes."""
    return Sizes(**{field.name: getattr(options, field.name) for field in fields(Sizes)} | changes)


def ready(options: argparse.Namespace) -> torch.device:
    """Return the requested device, and set the number of threads, the seed and float32 precision without TF32.

    Raises:
        NestError: CUDA was requested, but there is no CUDA device.
    """
    if options.device == "cuda" and not torch.cuda.is_available():
        raise NestError("--device cuda: torch finds no CUDA device; use --device cpu.")
    torch.set_num_threads(options.threads)
    torch.set_float32_matmul_precision("highest")
    torch.manual_seed(0)
    on_cuda = options.device != "cpu" and torch.cuda.is_available()
    return torch.device("cuda" if on_cuda else "cpu")


def protocol_names(text: str) -> list[str]:
    """Parse protocol letters such as `ABCD` or `AC`."""
    if unknown := set(text) - set(PROTOCOLS):
        raise argparse.ArgumentTypeError(
            f"unknown protocols {sorted(unknown)}; choose from {', '.join(PROTOCOLS)}"
        )
    return list(text)
