"""Self-verifying JSON: its last field is the hash of everything before it."""

import hashlib
import re

_SEALED = re.compile(r'(.*),\n  "sha256": "([0-9a-f]{64})"\n\}\n', re.DOTALL)


def sealed(text: str) -> str:
    """Return the text of a JSON object, indented by two spaces, with its hash as an additional field."""
    body = text.rstrip().removesuffix("\n}")
    return f'{body},\n  "sha256": "{_sha256(body)}"\n}}\n'


def unsealed(text: str) -> str:
    """Return the text without its seal, or unchanged if it has none.

    Raises:
        ValueError: the text was changed after it was sealed.
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
