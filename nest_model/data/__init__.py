"""From shards to batches: read, select and pack sets; labels and predictions."""
