"""The package's extras, and the message if the one that a room needs is missing."""

import sys
from importlib.util import find_spec

_SIGN = {"pipelines": "polars", "model": "torch", "assets": "dagster"}
"""By extra, a library that it alone brings."""


def need(extra: str) -> None:
    """Refuse to load a room whose extra is not installed; a command (`python -m ROOM`) ends with one line.

    Raises:
        ModuleNotFoundError: it is not installed.
        SystemExit: it is not installed, and this is a command.
    """
    if find_spec(_SIGN[extra]) is not None:
        return
    message = (
        f"{_SIGN[extra]} is not installed, which comes with nest's extra `{extra}`: pip install '.[{extra}]' "
        f"in a checkout, or 'WHEEL[{extra}]' of a wheel."
    )
    if sys.argv[:1] == ["-m"]:  # Python's own sign that it is looking for the module to run
        print(f"error: {message}", file=sys.stderr)  # noqa: T201
        raise SystemExit(2)
    raise ModuleNotFoundError(message, name=_SIGN[extra])
