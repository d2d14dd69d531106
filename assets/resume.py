"""The command `python -m assets.resume [RUN]`: resumes a run that failed or was killed, from where it broke."""

import argparse
import sys

import dagster as dg

from assets.runtime.resume import resume
from schemas.errors import NestError


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit status: 1 if a step fails, 2 if there is no run to resume."""
    parser = argparse.ArgumentParser(
        prog="python -m assets.resume",
        description="Resume a run that failed or was killed from where it broke, with the settings of its start.",
    )
    parser.add_argument(
        "run",
        nargs="?",
        metavar="RUN",
        help="id of the run, as shown in the UI and in the run's log (default: the newest run that is the last of its "
        "job on its data folder and did not succeed)",
    )
    options = parser.parse_args(arguments)
    try:
        with dg.DagsterInstance.get() as instance:
            return 0 if resume(instance, options.run) else 1
    except NestError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
