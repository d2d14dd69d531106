"""Lets `dagster job execute -j mimic_full` work word for word from a checkout or a folder in it, activated or not.

Dagster's `job execute`, `asset materialize` and `asset list` read no project file, only these variables. This module is
imported by `nest_environment.pth` whenever the environment's Python starts, so it is standard library alone and sets
defaults only. History, data and code are those of the checkout the command is run from, which may share its environment
with another; outside any checkout, of the one the environment lies in; without that, nothing is set.
"""

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

_MODULE_VARIABLES = (  # not DAGSTER_MODULE_NAME: it breaks `-f` and `-w`
    "DAGSTER_CLI_JOB_EXECUTE_MODULE_NAME",
    "DAGSTER_CLI_ASSET_MATERIALIZE_MODULE_NAME",
    "DAGSTER_CLI_ASSET_LIST_MODULE_NAME",
)

# else Dagster takes the folder it is run from, in which `code` and `meds` may be ours and not those it means
_FOLDER_VARIABLES = tuple(name.replace("MODULE_NAME", "WORKING_DIRECTORY") for name in _MODULE_VARIABLES)

# Arrow's and polars' allocators hold on to memory they used: giving it back and asking anew costs a fifth of the time
_KEEP_MEMORY = {
    "ARROW_DEFAULT_MEMORY_POOL": "mimalloc",
    "MIMALLOC_PURGE_DELAY": "-1",
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:10000,muzzy_decay_ms:10000",
}

# what a step prints reaches the console through a `tail` that Dagster ends with the step, before it has read all of it
_LAST_LINES = ("DAGSTER_COMPUTE_LOG_TAIL_WAIT_AFTER_FINISH", "0.1")  # seconds

# what was set here and not by the user, so that a command started from this one in another checkout has its own
_SET_HERE = "DAGSTER_NEST_DEFAULTS"


def settle() -> None:
    """Set Dagster's defaults for the checkout a command is run from, leaving what the user set alone."""
    inherited = dict(line.split("=", 1) for line in os.environ.get(_SET_HERE, "").splitlines())
    root = _checkout(inherited.get("DAGSTER_HOME"))
    if root is None:
        return
    for name, value in inherited.items():
        if os.environ.get(name) == value:
            del os.environ[name]
    set_here = dict(_missing(root))
    os.environ.update(set_here)
    os.environ[_SET_HERE] = "\n".join(f"{name}={value}" for name, value in set_here.items())
    _import_from(root)
    # Dagster's warning that `dg` is to be preferred, above everything a documented command says
    warnings.filterwarnings("ignore", message="Function .* is superseded", category=FutureWarning)


def checkout_above(folder: Path) -> Path | None:
    """Return the checkout a folder lies in, or None where it lies in none."""
    return next((place for place in (folder, *folder.parents) if _is_checkout(place)), None)


def history_folder(root: Path, data_dir: str) -> Path:
    """Return where the history of a data folder lies, or of a URL: each has its own, and it moves with the checkout."""
    from zlib import crc32  # of what can be imported at every start, the cheapest

    if "://" in data_dir:
        name, place = "store", data_dir.rstrip("/")
    else:
        path = Path(data_dir).expanduser().resolve()
        name, place = path.name, os.path.relpath(path, root) if path.is_relative_to(root) else str(path)
    # SQLAlchemy reads `?` and `%20` in the path of a database as parts of an address
    name = "".join(letter if letter.isalnum() or letter in "._- " else "_" for letter in name)
    return root / ".dagster" / f"{name}-{crc32(place.encode(errors='surrogateescape')):08x}"


def _checkout(inherited: str | None) -> Path | None:
    """Return the checkout a command is run from, or else the one that its parent was, or that its environment is in."""
    try:
        here = checkout_above(Path.cwd())
    except OSError:  # the folder is gone
        here = None
    others = (Path(place) for place in (inherited, Path(sys.prefix).parent) if place)
    return here or next((place for place in others if _is_checkout(place)), None)


def _is_checkout(folder: Path) -> bool:
    return (folder / "dagster.yaml").is_file() and (
        folder / "assets" / "environment" / "nest_environment.py"
    ).is_file()


def _missing(root: Path) -> Iterator[tuple[str, str]]:
    """Yield each default that the user did not set."""
    data = os.environ.get("NEST_DATA_DIR")
    if data and "://" not in data:  # the same for a process that is run from elsewhere
        data = os.environ["NEST_DATA_DIR"] = str(Path(data).expanduser().absolute())
    defaults = {
        **dict.fromkeys(_MODULE_VARIABLES, "assets.definitions"),
        **dict.fromkeys(_FOLDER_VARIABLES, str(root)),
        "DAGSTER_HOME": str(root),
        "DAGSTER_NEST_STORAGE": str(history_folder(root, data or str(root / "data"))),
        "NEST_DATA_DIR": str(root / "data"),
        **_KEEP_MEMORY,
        **dict([_LAST_LINES]),
        "GX_ANALYTICS_ENABLED": "false",
    }
    for name, value in defaults.items():
        if name not in os.environ:
            yield name, value


def _import_from(root: Path) -> None:
    """Import our rooms from this checkout, though the environment was made for another one."""
    others = [place for place in sys.path if place and place != str(root) and _is_checkout(Path(place))]
    installed = next((at for at, place in enumerate(sys.path) if place.endswith("-packages")), len(sys.path))
    explicit = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [place for place in sys.path if place not in others or place in explicit]
    if str(root) not in sys.path[:installed]:
        sys.path.insert(installed, str(root))
