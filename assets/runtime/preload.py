"""Imports once, in the fork server, what each of a run's forty steps would otherwise load for itself."""

import dagster._core.storage.local_compute_log_manager
import dagster._core.storage.sqlite_storage  # noqa: F401

from assets.definitions import defs

defs().get_repository_def()
