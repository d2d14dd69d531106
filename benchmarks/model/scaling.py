"""`python -m benchmarks.model.scaling`: rate and memory of each model over the context's length.

The rows of a batch stay the same: a context twice as long has half as many subjects. Sets keep their size, so
that their number m grows with the length, and with it Longformer's anchors and Nyströmformer's landmarks: its
m × m inverse costs m³, the paper's "cliff".
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
    publish(given.out, given.name, report, over_length(report))
    write_bytes(given.out / f"{given.name}.png", png(draw_scaling(report["points"])))
    return 0


def run(given: argparse.Namespace, sizes: Sizes, device: torch.device) -> dict[str, Any]:
    """Return every point, ready for JSON; `sizes` says how many rows a batch has."""
    lengths = [_of_length(sizes, length) for length in given.lengths]
    return {
        "machine": machine(device),
        "sizes": asdict(sizes),
        "protocol": {"name": given.protocol, "words": PROTOCOLS[given.protocol].words},
        "batches": given.batches,
        "points": [point for of in lengths for point in _points(of, given, device)],
    }


def _of_length(sizes: Sizes, length: int) -> Sizes:
    if length % sizes.set_rows or sizes.rows % length:
        raise NestError(
            f"--lengths: {length} must be whole sets of {sizes.set_rows} rows and divide the {sizes.rows} rows "
            "of a batch; change --lengths, --set-rows, --sets or --subjects."
        )
    fields = asdict(sizes) | {"sets": length // sizes.set_rows, "subjects": sizes.rows // length}
    return Sizes(**fields)


def _points(sizes: Sizes, given: argparse.Namespace, device: torch.device) -> list[dict[str, Any]]:
    """Measure all models at one length; a point that the device's memory has no room for is empty."""
    peaks = {name: _peak(name, sizes, given.protocol, device) for name in given.models}
    rates = _rates({name: peak for name, peak in peaks.items() if peak is not None}, sizes, given, device)
    points = []
    for name in given.models:
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
    peaks: dict[str, int], sizes: Sizes, given: argparse.Namespace, device: torch.device
) -> dict[str, float]:
    """Return the median rate of each model, in turns; where there is no room for all, the largest by itself."""
    if not peaks:
        return {}
    names = list(peaks)
    try:
        rates = measure(names, sizes, given.protocol, seeds=[SEED], batches=given.batches, device=device)
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
    alone = {largest: peaks.pop(largest)}
    return _rates(peaks, sizes, given, device) | _rates(alone, sizes, given, device)


if __name__ == "__main__":
    sys.exit(main())
