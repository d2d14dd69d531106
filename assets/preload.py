"""Imports once, in the fork server, what each of a run's forty steps would otherwise load for itself."""

import assets.runtime.local_storage  # noqa: F401
from assets.definitions import defs

defs().get_repository_def()
