"""Measures tokens per second of several models on the same batches, the models taking turns."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from benchmarks.model.measure import seconds
from benchmarks.model.models import build
from benchmarks.model.protocols import PROTOCOLS
from benchmarks.model.sets import draw
from benchmarks.model.sizes import Sizes
from nest_model.training.telemetry import Progress

WARM_UP = 3  # uncounted batches of each model at the start


def measure(
    names: Sequence[str],
    sizes: Sizes,
    protocol: str,
    *,
    seeds: Sequence[int],
    batches: int,
    device: torch.device,
) -> dict[str, np.ndarray]:
    """Return tokens per second [seeds, batches] of each model.

    Seeds draw the batches; the weights are drawn once. Every batch goes through all models before the next is drawn,
    and seeds and models take turns in going first, so that a machine that slows down affects all models equally.
    """
    run = PROTOCOLS[protocol]
    models = {name: run.prepare(build(name, sizes, device)) for name in names}
    rates = {name: np.empty((len(seeds), batches)) for name in names}
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    total = (WARM_UP + batches * len(seeds)) * len(names)
    progress = Progress(None, f"protocol {protocol}, N = {sizes.length:,}", total, "batches")
    for turn in range(-WARM_UP, batches * len(seeds)):
        batch, place = divmod(max(turn, 0), len(seeds))
        batch_arrays = draw(sizes, generators[place]).to(device)
        first = turn % len(names)
        for name in (*names[first:], *names[:first]):
            took = seconds(partial(run.step, models[name], batch_arrays), device)
            rates[name][place, batch] = sizes.rows / took  # the warm-up's rates are overwritten
            progress.advance(1)
    return rates
