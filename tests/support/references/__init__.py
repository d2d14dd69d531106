"""A plain reference of every system: padded or by loops, float64, sharing no code with the packed encoders.

One module for each system, named like it, with a function `patients(encoder, weights, batch)`: the vector of each
patient under the readout `cls`, [subjects, d_model], computed in the simplest way from weights by name.
"""

import importlib
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from nest_model.data.packed import PackedBatch
from nest_model.model.encoder import Encoder


def patients(encoder: Encoder, weights: Mapping[str, Tensor], batch: PackedBatch) -> Tensor:
    """Return the reference's vector of each patient, [subjects, d_model].

    Args:
        encoder: read for its config and its buffers alone.
    """
    module = importlib.import_module(f"{__name__}.{encoder.system}")
    vectors: Tensor = module.patients(encoder, weights, batch)
    return vectors


def least_loss(encoder: Encoder, corrupted_batch: Any) -> float:
    """Return the least loss that anything can reach on a corrupted batch: 0, unless the reference has another."""
    module = importlib.import_module(f"{__name__}.{encoder.system}")
    least: float = module.least_loss(encoder, corrupted_batch) if hasattr(module, "least_loss") else 0.0
    return least
