"""Imported by the process Dagster forks a run's steps from: what each of forty steps would else load for itself."""

import dagster._core.storage.local_compute_log_manager
import dagster._core.storage.sqlite_storage  # noqa: F401

from assets.definitions import defs

defs().get_repository_def()
