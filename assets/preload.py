"""Imports once, in the fork server, what each of a run's forty steps would otherwise load for itself.

That includes the run's job, whose building takes as long as many a step.
"""

import os

import assets.runtime.local_storage  # noqa: F401
from assets.definitions import defs
from assets.runtime.executor import JOB_VARIABLE

repository = defs().get_repository_def()
if repository.has_job(job := os.environ.get(JOB_VARIABLE, "")):
    repository.get_job(job)
