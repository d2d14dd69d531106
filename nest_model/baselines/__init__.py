"""Baselines: other models on the same patients, with the same prediction times and the same metrics."""
