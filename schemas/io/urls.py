"""Addresses that carry a user's name, password or token: they may be used, and are neither kept nor shown."""

import re
from urllib.parse import urlsplit, urlunsplit

_OF_A_DATABASE = re.compile(r"://|;|\b(password|pwd|user|uid|host|dsn)\s*=|^[^\s/]+/[^\s/]+@", re.IGNORECASE)


def is_database_address(value: str) -> bool:
    """Say whether a value is where a database server is, in any spelling, and no path: it may hold a password."""
    return _OF_A_DATABASE.search(value) is not None


def holds_secret(value: str) -> bool:
    """Say whether a value is an address with a user or a query."""
    if "://" not in value:
        return False
    try:
        parts = urlsplit(value)
    except ValueError:  # no address that could be used: what it holds, nobody knows
        return True
    return "@" in parts.netloc or bool(parts.query or parts.fragment)


def shown_url(url: str) -> str:
    """Return an address without user and query, as it may be shown."""
    if not holds_secret(url):
        return url
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.split("://")[0] + "://…"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
