"""Few-shot curves: how well models do that learn from a handful of labelled rows."""
