"""What of Dagster is ours to arrange: processes, history, caching of steps, errors."""
