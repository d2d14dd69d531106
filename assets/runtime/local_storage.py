"""Loads Dagster's local storages, which each step would otherwise import for itself."""

import dagster._core.storage.local_compute_log_manager
import dagster._core.storage.sqlite_storage  # noqa: F401
