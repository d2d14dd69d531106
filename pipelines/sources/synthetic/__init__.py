"""Moved to `pipelines.synthetic`; the command of before still works."""
