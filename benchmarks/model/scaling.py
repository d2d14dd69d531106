"""`python -m benchmarks.model.scaling`: throughput and memory of each model over the context length.

The rows per batch are constant: a context twice as long has half as many patients. Sets keep their size, so their
number m grows with the length, and with it Longformer's anchors and Nyströmformer's landmarks, whose m × m inverse
costs m³, the paper's "cliff".
"""

import argparse
import logging
import sys
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from benchmarks.model import flags
from benchmarks.model.closed_form import flop_per_token
from benchmarks.model.measure import is_out_of_memory, machine, peak_bytes
from benchmarks.model.protocols import PROTOCOLS
from benchmarks.model.results import publish
from benchmarks.model.scaling_figure import draw_scaling
from benchmarks.model.sizes import Sizes
from benchmarks.model.tables import over_length
from benchmarks.model.throughput import measure
from nest_model.report.figures import png
from schemas.errors import NestError
from schemas.io.outputs import write_bytes

LENGTHS = (512, 1024, 2048, 4096, 8192, 16_384)
SEED = 42
log = logging.getLogger("nest")


def main(arguments: list[str] | None = None) -> int:
    """Measure, write `<name>.md`, `<name>.json` and `<name>.png`, and print the first."""
    parser = flags.parser("scaling", "Rate and memory of each model over the context's length.", "scaling")
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=list(LENGTHS), help="context lengths in rows"
    )
    parser.add_argument("--protocol", choices=PROTOCOLS, default="A", help="protocol of Table 1")
    parser.add_argument("--batches", type=int, default=20, help="batches per length")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    try:
        report = run(options, flags.sizes_of(options), flags.ready(options))
    except NestError as error:
        log.error("error: %s", error)
        return 2
    publish(options.out, options.name, report, over_length(report))
    write_bytes(options.out / f"{options.name}.png", png(draw_scaling(report["points"])))
    return 0


def run(options: argparse.Namespace, sizes: Sizes, device: torch.device) -> dict[str, Any]:
    """Return a JSON-ready report of all points; `sizes` gives the rows per batch."""
    lengths = [_sizes_at_length(sizes, length) for length in options.lengths]
    return {
        "machine": machine(device),
        "sizes": asdict(sizes),
        "protocol": {"name": options.protocol, "words": PROTOCOLS[options.protocol].words},
        "batches": options.batches,
        "points": [point for of in lengths for point in _points(of, options, device)],
    }


def _sizes_at_length(sizes: Sizes, length: int) -> Sizes:
    if length % sizes.set_rows or sizes.rows % length:
        raise NestError(
            f"--lengths: {length} must be a multiple of the {sizes.set_rows} rows of a set and divide the {sizes.rows} "
            "rows of a batch; change --lengths, --set-rows, --sets or --subjects."
        )
    fields = asdict(sizes) | {"sets": length // sizes.set_rows, "subjects": sizes.rows // length}
    return Sizes(**fields)


def _points(sizes: Sizes, options: argparse.Namespace, device: torch.device) -> list[dict[str, Any]]:
    """Measure all models at one length; the figures of a model that does not fit into memory are None."""
    peaks = {name: _peak(name, sizes, options.protocol, device) for name in options.models}
    rates = _rates({name: peak for name, peak in peaks.items() if peak is not None}, sizes, options, device)
    points = []
    for name in options.models:
        rate, peak = rates.get(name), peaks[name]
        if rate is None or peak is None:
            log.warning("%s, N = %d: out of memory", name, sizes.length)
        else:
            log.info("%s, N = %d: %.2f K tokens/s, %.2f GiB", name, sizes.length, rate / 1e3, peak / 2**30)
        points.append(
            {
                "model": name,
                "length": sizes.length,
                "subjects": sizes.subjects,
                "sets": sizes.sets,
                "flop_per_token": flop_per_token(name, sizes),
                "median_tokens_per_s": rate,
                "peak_bytes": peak,
            }
        )
    return points


def _peak(name: str, sizes: Sizes, protocol: str, device: torch.device) -> int | None:
    with suppress(torch.OutOfMemoryError):
        return peak_bytes(name, sizes, protocol, device)
    return None


def _rates(
    peaks: dict[str, int], sizes: Sizes, options: argparse.Namespace, device: torch.device
) -> dict[str, float]:
    """Return the median rate of each model, measured in turns; if not all fit into memory, the largest alone."""
    if not peaks:
        return {}
    names = list(peaks)
    try:
        rates = measure(names, sizes, options.protocol, seeds=[SEED], batches=options.batches, device=device)
        return {name: float(np.median(rate)) for name, rate in rates.items()}
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    finally:
        if device.type == "cuda":
            torch.cuda.empty_cache()
    if len(names) == 1:
        return {}
    largest = max(names, key=peaks.__getitem__)
    single = {largest: peaks.pop(largest)}
    return _rates(peaks, sizes, options, device) | _rates(single, sizes, options, device)


if __name__ == "__main__":
    sys.exit(main())
