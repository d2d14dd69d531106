"""NEST itself: shards to batches, pretraining, fine-tuning, scores. Knows no polars, DuckDB or Dagster."""

from schemas.extras import need

need("model")
