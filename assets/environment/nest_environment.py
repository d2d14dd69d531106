"""Lets `dagster job execute -j mimic_full` work word for word from a checkout, activated or not.

Dagster's `job execute`, `asset materialize` and `asset list` read no project file, only these variables. This module is
imported by `nest_environment.pth` whenever the environment's Python starts, so it is standard library alone, sets
defaults only, and does nothing unless a `dagster.yaml` stands beside the environment.
"""

import os
import sys
import warnings
from pathlib import Path

_MODULE_VARIABLES = (  # not DAGSTER_MODULE_NAME: it breaks `-f` and `-w`
    "DAGSTER_CLI_JOB_EXECUTE_MODULE_NAME",
    "DAGSTER_CLI_ASSET_MATERIALIZE_MODULE_NAME",
    "DAGSTER_CLI_ASSET_LIST_MODULE_NAME",
)

# Arrow's and polars' allocators hold on to memory they used: giving it back and asking anew costs a fifth of the time
_KEEP_MEMORY = {
    "ARROW_DEFAULT_MEMORY_POOL": "mimalloc",
    "MIMALLOC_PURGE_DELAY": "-1",
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:10000,muzzy_decay_ms:10000",
}

# what a step prints reaches the console through a `tail` that Dagster ends with the step, before it has read all of it
_LAST_LINES = ("DAGSTER_COMPUTE_LOG_TAIL_WAIT_AFTER_FINISH", "0.1")  # seconds


def settle() -> None:
    """Set Dagster's defaults for the checkout this environment belongs to, leaving what the user set alone."""
    root = Path(sys.prefix).parent
    if not (root / "dagster.yaml").is_file() or not (root / "assets" / "definitions.py").is_file():
        return
    for name in _MODULE_VARIABLES:
        os.environ.setdefault(name, "assets.definitions")
    os.environ.setdefault("DAGSTER_HOME", str(root))
    os.environ.setdefault("DAGSTER_NEST_STORAGE", str(root / ".dagster"))
    os.environ.setdefault("NEST_DATA_DIR", str(root / "data"))
    for name, value in _KEEP_MEMORY.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault(*_LAST_LINES)
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    # Dagster's warning that `dg` is to be preferred, above everything a documented command says
    warnings.filterwarnings("ignore", message="Function .* is superseded", category=FutureWarning)
