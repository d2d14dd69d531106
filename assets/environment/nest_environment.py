"""Lets `dagster job execute -j mimic_full` work without options anywhere in a checkout, its environment active or not.

Dagster's `job execute`, `asset materialize` and `asset list` read no project file, only these variables.
`nest_environment.pth` imports this module whenever the environment's Python starts, so it uses the standard library
alone and sets defaults only: those that are read before any of our code is loaded, or that name the checkout. A wheel
brings no such file; `python -m assets.home` has the same defaults for a shell.

History, data and code are those of the checkout the command is run from, which may share its environment with another
checkout; outside any checkout, those of the checkout that holds the environment. If there is no such checkout either,
nothing is set.
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

# else Dagster imports from the folder it is run from, which may hold other modules named `code` or `meds`
_FOLDER_VARIABLES = tuple(name.replace("MODULE_NAME", "WORKING_DIRECTORY") for name in _MODULE_VARIABLES)

# what a step prints reaches the console through a `tail` that Dagster ends with the step, before it has read all of it
_LAST_LINES = ("DAGSTER_COMPUTE_LOG_TAIL_WAIT_AFTER_FINISH", "0.1")  # seconds

# the variables set here and not by the user, so that a child process in another checkout replaces them by its own
_SET_HERE = "DAGSTER_NEST_DEFAULTS"


def settle() -> None:
    """Set Dagster's defaults for the checkout a command is run from; keep the variables the user set."""
    parent_defaults = dict(line.split("=", 1) for line in os.environ.get(_SET_HERE, "").splitlines())
    root = _checkout(parent_defaults.get("DAGSTER_HOME"))
    if root is None:
        return
    for name, value in parent_defaults.items():
        if os.environ.get(name) == value:
            del os.environ[name]
    set_here = dict(_missing(root))
    os.environ.update(set_here)
    os.environ[_SET_HERE] = "\n".join(f"{name}={value}" for name, value in set_here.items())
    _import_from(root)
    # Dagster's warning that `dg` is to be preferred, which would stand above the output of every documented command
    warnings.filterwarnings("ignore", message="Function .* is superseded", category=FutureWarning)


def defaults(root: Path, data_dir: str) -> dict[str, str]:
    """Return what is set for a checkout, or for a folder that stands for one, and its data folder."""
    return {
        **dict.fromkeys(_MODULE_VARIABLES, "assets.definitions"),
        **dict.fromkeys(_FOLDER_VARIABLES, str(root)),
        "DAGSTER_HOME": str(root),
        "DAGSTER_NEST_STORAGE": str(history_folder(root, data_dir, os.environ.get("NEST_EXPERIMENT"))),
        "NEST_DATA_DIR": data_dir,
        **dict([_LAST_LINES]),
    }


def checkout_above(folder: Path) -> Path | None:
    """Return the checkout that contains a folder, or None."""
    return next((path for path in (folder, *folder.parents) if _is_checkout(path)), None)


def history_folder(root: Path, data_dir: str, experiment: str | None = None) -> Path:
    """Return the history folder of a data folder or URL; a history inside the checkout moves with it.

    Args:
        experiment: a named experiment, whose runs have a history of their own.
    """
    from zlib import crc32  # the hash that is cheapest to import at every start

    if "://" in data_dir:
        name, address = "store", data_dir.rstrip("/")
    else:
        path = Path(data_dir).expanduser().resolve()
        name, address = path.name, os.path.relpath(path, root) if path.is_relative_to(root) else str(path)
    # SQLAlchemy reads `?` and `%20` in the path of a database as parts of an address
    name = "".join(letter if letter.isalnum() or letter in "._- " else "_" for letter in name)
    folder = root / ".dagster" / f"{name}-{crc32(address.encode(errors='surrogateescape')):08x}"
    # a name that is none is refused when the settings are read
    return (
        folder.with_name(f"{folder.name}.{experiment}")
        if experiment and experiment.isidentifier()
        else folder
    )


def _checkout(parent_root: str | None) -> Path | None:
    """Return the checkout a command is run from, else that of its parent process, else that of its environment."""
    try:
        current = checkout_above(Path.cwd())
    except OSError:  # the folder was deleted
        current = None
    candidates = (Path(path) for path in (parent_root, Path(sys.prefix).parent) if path)
    return current or next((path for path in candidates if _is_checkout(path)), None)


def _is_checkout(folder: Path) -> bool:
    return (folder / "dagster.yaml").is_file() and (
        folder / "assets" / "environment" / "nest_environment.py"
    ).is_file()


def _missing(root: Path) -> Iterator[tuple[str, str]]:
    """Yield each default that the user did not set."""
    data = os.environ.get("NEST_DATA_DIR")
    if data and "://" not in data:  # absolute, so that it is the same for a process run from another folder
        data = os.environ["NEST_DATA_DIR"] = str(Path(data).expanduser().absolute())
    for name, value in defaults(root, data or str(root / "data")).items():
        if name not in os.environ:
            yield name, value


def _import_from(root: Path) -> None:
    """Import this checkout's packages, even if the environment was made for another checkout."""
    other_roots = [path for path in sys.path if path and path != str(root) and _is_checkout(Path(path))]
    packages_index = next((i for i, path in enumerate(sys.path) if path.endswith("-packages")), len(sys.path))
    explicit_paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [path for path in sys.path if path not in other_roots or path in explicit_paths]
    if str(root) not in sys.path[:packages_index]:
        sys.path.insert(packages_index, str(root))
