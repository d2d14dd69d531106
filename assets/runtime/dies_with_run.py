"""Imported first by the process Dagster forks a run's steps from: a killed run must leave nothing behind.

Neither that process nor a step forked from it notices the death of the run that started it: the steps would go on, and
a rerun would race them. And a signal of the terminal is the run's own, which ends its steps itself: were they of its
process group, they could be gone when Dagster waits for them to hear of it, and it would wait forever.
"""

import os

from nest_model.training.stop import die_with_parent

os.setpgid(0, 0)
die_with_parent()
os.register_at_fork(after_in_child=die_with_parent)
