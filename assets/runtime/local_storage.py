"""Loads Dagster's local storages, and reads once for all steps which version their tables should have.

Whenever Dagster opens a storage, it executes each of alembic's scripts, some ninety files, to find the last one.
"""

from types import SimpleNamespace
from typing import Any

import dagster._core.storage.local_compute_log_manager
import dagster._core.storage.sqlite_storage  # noqa: F401
from dagster._core.storage import sql


def read_scripts_once() -> None:
    """Give this process and those forked from it one reading of the scripts, which all storages share."""
    module: Any = sql
    scripts = module.ScriptDirectory.from_config(sql.get_alembic_config(str(sql.__file__)))
    scripts.as_revision_number("head")
    module.ScriptDirectory = SimpleNamespace(from_config=lambda config: scripts)


read_scripts_once()
