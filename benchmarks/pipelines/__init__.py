"""Benchmarks of the data pipelines; see docs/benchmarks.md."""
