"""Honest yardsticks: other models on the same patients, the same cut, the same metrics."""
