"""The hint of a message that refuses a name: the choice that the user may have meant."""

import difflib
from collections.abc import Iterable


def near_name(name: str, choices: Iterable[str]) -> str:
    """Return ` (do you mean 'x'?)` with the choice most like the name; nothing if none is like it."""
    near = difflib.get_close_matches(name, list(choices), n=1)
    return f" (do you mean '{near[0]}'?)" if near else ""
