"""`python -m benchmarks.model.table1`: the paper's Table 1 measured on this machine, as Markdown and JSON."""

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
    parser.add_argument(
        "--protocols",
        type=flags.protocol_names,
        default=list(PROTOCOLS),
        metavar="ABCD",
        help="letters of the protocols to measure",
    )
    parser.add_argument("--batches", type=int, default=100, help="batches per seed")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS), help="seeds of the batches")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    try:
        report = run(options, flags.sizes_of(options), flags.ready(options))
    except (NestError, torch.OutOfMemoryError) as error:
        log.error("error: %s", error)
        return 2
    publish(options.out, options.name, report, as_markdown(report))
    return 0


def run(options: argparse.Namespace, sizes: Sizes, device: torch.device) -> dict[str, Any]:
    """Return the JSON-ready report."""
    return {
        "machine": machine(device),
        "sizes": asdict(sizes) | {"length": sizes.length, "features": sizes.features},
        "seeds": options.seeds,
        "batches": options.batches,
        "models": {
            name: {"flop_per_token": flop_per_token(name, sizes), "parameters": parameters(name, sizes)}
            for name in options.models
        },
        "protocols": {
            name: {"words": PROTOCOLS[name].words, "models": _run_protocol(name, options, sizes, device)}
            for name in options.protocols
        },
    }


def _run_protocol(
    protocol: str, options: argparse.Namespace, sizes: Sizes, device: torch.device
) -> dict[str, dict[str, Any]]:
    peaks = {}
    for name in options.models:
        peaks[name] = peak_bytes(name, sizes, protocol, device)
        log.info("protocol %s: %s takes %.2f GiB at its peak", protocol, name, peaks[name] / 2**30)
    rates = measure(
        options.models, sizes, protocol, seeds=options.seeds, batches=options.batches, device=device
    )
    return {name: {"peak_bytes": peaks[name]} | _figures(name, rates) for name in options.models}


def _figures(name: str, rates: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return statistics of a model's rates, and its comparison with NEST if that was measured."""
    model_rates, nest = rates[name], rates.get("nest")
    figures: dict[str, Any] = {
        "median_tokens_per_s": float(np.median(model_rates)),
        "mean_tokens_per_s": float(model_rates.mean()),
        "pooled_sd": pooled_sd(model_rates),
        "tokens_per_s_of_seeds": model_rates.mean(axis=1).tolist(),
    }
    if nest is not None and name != "nest":
        ratio = float(np.median(nest) / np.median(model_rates))
        figures |= {"nest_times_as_fast": ratio, "paired_t_test_p": paired_p(nest, model_rates)}
    return figures


if __name__ == "__main__":
    sys.exit(main())
