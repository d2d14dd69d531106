"""Ends the fork server and every step when their run dies; the fork server imports this module first.

By itself neither the fork server nor a step forked from it notices that the run that started it was killed: the steps
would continue, and a rerun would race them. The fork server also leaves the run's process group. In that group the
steps would get Ctrl-C too and could exit before the run ends them, and Dagster would wait for exited children forever.
"""

import gc
import os

from nest_model.training.stop import die_with_parent

gc.disable()  # until all is loaded: preloaded.py
os.setpgid(0, 0)
die_with_parent()
os.register_at_fork(after_in_child=die_with_parent)
