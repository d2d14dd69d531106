"""JSON that knows its own bytes: its last field is the hash of all that stands before it."""

import hashlib
import re

_SEALED = re.compile(r'(.*),\n  "sha256": "([0-9a-f]{64})"\n\}\n', re.DOTALL)


def sealed(text: str) -> str:
    """Return the text of a JSON object, indented by two, with its hash as one more field."""
    body = text.rstrip().removesuffix("\n}")
    return f'{body},\n  "sha256": "{_sha256(body)}"\n}}\n'


def unsealed(text: str) -> str:
    """Return the text as it was sealed; one that has no seal as it is.

    Raises:
        ValueError: something in it was changed.
    """
    match = _SEALED.fullmatch(text)
    if match is None:
        return text
    body, sha256 = match.groups()
    if _sha256(body) != sha256:
        raise ValueError("the seal is broken")
    return f"{body}\n}}\n"


def _sha256(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()
