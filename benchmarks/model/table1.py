"""`python -m benchmarks.model.table1`: the paper's Table 1 on this machine, as Markdown and JSON."""

import argparse
import logging
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from benchmarks.model import flags
from benchmarks.model.closed_form import flop_per_token, parameters
from benchmarks.model.measure import machine, peak_bytes
from benchmarks.model.protocols import PROTOCOLS
from benchmarks.model.results import publish
from benchmarks.model.sizes import Sizes
from benchmarks.model.statistics import paired_p, pooled_sd
from benchmarks.model.tables import as_markdown
from benchmarks.model.throughput import measure
from schemas.errors import NestError

SEEDS = (42, 123, 456, 2025, 3407)
log = logging.getLogger("nest")


def main(arguments: list[str] | None = None) -> int:
    """Measure, write `<name>.md` and `<name>.json`, and print the former."""
    parser = flags.parser("table1", "The paper's Table 1, measured here.", "table1")
    parser.add_argument("--protocols", type=flags.protocol_names, default=list(PROTOCOLS), metavar="ABCD")
    parser.add_argument("--batches", type=int, default=100, help="of each seed")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    try:
        report = run(given, flags.sizes_of(given), flags.ready(given))
    except (NestError, torch.OutOfMemoryError) as error:
        log.error("error: %s", error)
        return 2
    publish(given.out, given.name, report, as_markdown(report))
    return 0


def run(given: argparse.Namespace, sizes: Sizes, device: torch.device) -> dict[str, Any]:
    """Return the whole report, ready for JSON."""
    return {
        "machine": machine(device),
        "sizes": asdict(sizes) | {"length": sizes.length, "features": sizes.features},
        "seeds": given.seeds,
        "batches": given.batches,
        "models": {
            name: {"flop_per_token": flop_per_token(name, sizes), "parameters": parameters(name, sizes)}
            for name in given.models
        },
        "protocols": {
            name: {"words": PROTOCOLS[name].words, "models": _under(name, given, sizes, device)}
            for name in given.protocols
        },
    }


def _under(
    protocol: str, given: argparse.Namespace, sizes: Sizes, device: torch.device
) -> dict[str, dict[str, Any]]:
    peaks = {}
    for name in given.models:
        peaks[name] = peak_bytes(name, sizes, protocol, device)
        log.info("protocol %s: %s takes %.2f GiB at its peak", protocol, name, peaks[name] / 2**30)
    rates = measure(given.models, sizes, protocol, seeds=given.seeds, batches=given.batches, device=device)
    return {name: {"peak_bytes": peaks[name]} | _figures(name, rates) for name in given.models}


def _figures(name: str, rates: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return a model's rates in figures, and how NEST compares where it was measured."""
    own, nest = rates[name], rates.get("nest")
    figures: dict[str, Any] = {
        "median_tokens_per_s": float(np.median(own)),
        "mean_tokens_per_s": float(own.mean()),
        "pooled_sd": pooled_sd(own),
        "tokens_per_s_of_seeds": own.mean(axis=1).tolist(),
    }
    if nest is not None and name != "nest":
        ratio = float(np.median(nest) / np.median(own))
        figures |= {"nest_times_as_fast": ratio, "paired_t_test_p": paired_p(nest, own)}
    return figures


if __name__ == "__main__":
    sys.exit(main())
