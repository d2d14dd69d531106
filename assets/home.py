"""`eval "$(python -m assets.home FOLDER)"`: where there is no checkout, a folder for the history and data of runs.

A checkout's environment sets for itself what Dagster reads before any of our code is loaded; installed from a wheel,
the shell must set these variables. The folder gets a checkout's `dagster.yaml`: one run at a time, and no telemetry.
"""

import argparse
import shlex
import sys
from pathlib import Path

from assets.environment.nest_environment import checkout_above, defaults
from schemas.io.atomic import write_text

CONFIG = "dagster.yaml"
_PLACES = (
    Path(__file__).parent / "environment" / CONFIG,
    Path(__file__).parents[1] / CONFIG,
)  # wheel, checkout


def settled(folder: Path) -> list[str]:
    """Make a folder the home of runs and return the lines by which a shell knows it."""
    home = folder.expanduser().resolve()
    home.mkdir(parents=True, exist_ok=True)
    if not (home / CONFIG).exists():
        write_text(home / CONFIG, next(place for place in _PLACES if place.exists()).read_text())
    return [
        f"export {name}={shlex.quote(value)}" for name, value in defaults(home, str(home / "data")).items()
    ]


def main(arguments: list[str] | None = None) -> int:
    """Print the lines; 2 after one clear line on stderr."""
    parser = argparse.ArgumentParser(prog="python -m assets.home", description=__doc__)
    parser.add_argument("folder", type=Path, help="where data and history lie; made where it is not there")
    folder = parser.parse_args(arguments).folder
    if checkout := checkout_above(folder.expanduser().resolve()):
        sys.stderr.write(f"error: {checkout} is a checkout, which `make setup` makes a home of its own.\n")
        return 2
    try:
        sys.stdout.write("\n".join(settled(folder)) + "\n")
    except OSError as error:
        sys.stderr.write(f"error: {error.filename or folder}: {error.strerror}; give another folder.\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
