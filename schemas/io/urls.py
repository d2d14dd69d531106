"""Recognize and redact URLs with a user name, password or token, which may be used but not stored or displayed."""

import re
from urllib.parse import urlsplit, urlunsplit

_DATABASE_ADDRESS = re.compile(
    r"://|;|\b(password|pwd|user|uid|host|dsn)\s*=|^[^\s/]+/[^\s/]+@", re.IGNORECASE
)


def is_database_address(value: str) -> bool:
    """Return whether a value is the address of a database server in any syntax, which may contain a password."""
    return _DATABASE_ADDRESS.search(value) is not None


def holds_secret(value: str) -> bool:
    """Return whether a value is a URL with a user, query or fragment."""
    if "://" not in value:
        return False
    try:
        parts = urlsplit(value)
    except ValueError:  # not a usable URL, so it may contain anything
        return True
    return "@" in parts.netloc or bool(parts.query or parts.fragment)


def redact_url(url: str) -> str:
    """Return a URL without user, query and fragment, for display."""
    if not holds_secret(url):
        return url
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.split("://")[0] + "://…"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
