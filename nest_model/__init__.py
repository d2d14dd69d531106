"""NEST itself: shards to batches, pretraining, fine-tuning, scores. Knows no polars, DuckDB or Dagster.

From Python `nest_model.load(folder)` is where to begin, see `nest_model/interface.py`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from schemas.extras import need

need("model")

INTERFACE = ("Model", "compare", "load", "open_shards")
"""What is taken from `nest_model.interface`, which loads torch, when it is first asked for."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        # by its name and not by a statement: the version of a step's code follows these
        if name in INTERFACE:
            return getattr(import_module("nest_model.interface"), name)
        raise AttributeError(f"module 'nest_model' has no attribute '{name}'")
