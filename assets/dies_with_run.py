"""Imported first by the process Dagster forks a run's steps from: a killed run must leave nothing behind.

Such a process does not notice the death of the run that started it, its steps would go on, and a rerun would race them.
"""

from nest_model.telemetry import die_with_parent

die_with_parent()
