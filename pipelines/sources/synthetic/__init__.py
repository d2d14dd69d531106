"""Moved to `pipelines.synthetic`; the earlier command still works."""
