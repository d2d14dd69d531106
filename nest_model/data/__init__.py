"""Shards to batches: reading, selecting and packing sets; labels and predictions."""
