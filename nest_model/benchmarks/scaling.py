"""`python -m nest_model.benchmarks.scaling`: rate and memory of each model over the context's length.

The rows of a batch stay the same: a context twice as long has half as many subjects. Sets keep their size, so
that their number m grows with the length, and with it Longformer's anchors and Nyströmformer's landmarks: its
m × m inverse costs m³, the paper's "cliff".
"""

import argparse
import logging
import sys
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from nest_model.benchmarks import flags
from nest_model.benchmarks.closed_form import flop_per_token
from nest_model.benchmarks.measure import machine, peak_bytes
from nest_model.benchmarks.protocols import PROTOCOLS
from nest_model.benchmarks.scaling_figure import draw_scaling
from nest_model.benchmarks.sizes import Sizes
from nest_model.benchmarks.throughput import measure
from nest_model.figures import png
from nest_model.files import write_json
from schemas.errors import NestError

LENGTHS = (512, 1024, 2048, 4096, 8192, 16_384)
SEED = 42
log = logging.getLogger("nest")


def main(arguments: list[str] | None = None) -> int:
    """Measure, write `<name>.json` and `<name>.png`."""
    parser = flags.parser("scaling", "Rate and memory of each model over the context's length.", "scaling")
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--protocol", choices=PROTOCOLS, default="A")
    parser.add_argument("--batches", type=int, default=20, help="of each length")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    try:
        report = run(given, flags.sizes_of(given), flags.ready(given))
    except NestError as error:
        log.error("error: %s", error)
        return 2
    write_json(given.out / f"{given.name}.json", report)
    (given.out / f"{given.name}.png").write_bytes(png(draw_scaling(report["points"])))
    return 0


def run(given: argparse.Namespace, sizes: Sizes, device: torch.device) -> dict[str, Any]:
    """Return every point, ready for JSON; `sizes` says how many rows a batch has."""
    lengths = [_of_length(sizes, length) for length in given.lengths]
    return {
        "machine": machine(device),
        "sizes": asdict(sizes),
        "protocol": {"name": given.protocol, "words": PROTOCOLS[given.protocol].words},
        "batches": given.batches,
        "points": [_point(name, of, given, device) for of in lengths for name in given.models],
    }


def _of_length(sizes: Sizes, length: int) -> Sizes:
    if length % sizes.set_rows or sizes.rows % length:
        raise NestError(
            f"--lengths: {length} must be whole sets of {sizes.set_rows} rows and divide the {sizes.rows} rows "
            "of a batch; change --lengths, --set-rows, --sets or --subjects."
        )
    fields = asdict(sizes) | {"sets": length // sizes.set_rows, "subjects": sizes.rows // length}
    return Sizes(**fields)


def _point(name: str, sizes: Sizes, given: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    point = {"model": name, "length": sizes.length, "subjects": sizes.subjects, "sets": sizes.sets}
    figures = _measured(name, sizes, given, device)
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return point | {"flop_per_token": flop_per_token(name, sizes)} | figures


def _measured(name: str, sizes: Sizes, given: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Measure a model by itself; a point that the device's memory has no room for is empty."""
    try:
        peak = peak_bytes(name, sizes, given.protocol, device)
        rates = measure([name], sizes, given.protocol, seeds=[SEED], batches=given.batches, device=device)[
            name
        ]
    except torch.OutOfMemoryError:
        log.warning("%s, N = %d: out of memory", name, sizes.length)
        return {"median_tokens_per_s": None, "peak_bytes": None}
    rate = float(np.median(rates))
    log.info("%s, N = %d: %.2f K tokens/s, %.2f GiB", name, sizes.length, rate / 1e3, peak / 2**30)
    return {"median_tokens_per_s": rate, "peak_bytes": peak}


if __name__ == "__main__":
    sys.exit(main())
