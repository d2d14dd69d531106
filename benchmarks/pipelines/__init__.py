"""What the data work costs, measured; see docs/benchmarks.md."""
