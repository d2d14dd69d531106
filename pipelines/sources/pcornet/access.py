"""Who may read the database: from the environment alone, never from a file, never shown."""

import os
import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

from schemas.errors import InputError

NAMES = ("NEST_DB_USER", "NEST_DB_PASSWORD", "NEST_DB_DSN")
OR_PLAINTEXT = (
    ", or allow plain text on a net of your own: --allow-plaintext, or NEST_DB_ALLOW_PLAINTEXT=true"
)
_LOCAL = re.compile(r"localhost|127(\.\d+){3}|::1|/.*|")
_SAFE_MODES = ("require", "verify-ca", "verify-full")


@dataclass(frozen=True)
class Access:
    """User, password and address; the password shows in no message and no representation."""

    user: str
    password: str = field(repr=False)
    dsn: str

    @classmethod
    def from_environment(cls) -> "Access":
        """Read the three variables.

        Raises:
            InputError: one is missing, or the address holds a password.
        """
        missing = [name for name in NAMES if not os.environ.get(name)]
        if missing:
            raise InputError(
                f"{', '.join(missing)}: not set. A database's user, password and address come from the environment."
            )
        user, password, dsn = (os.environ[name] for name in NAMES)
        refuse_password(dsn, "NEST_DB_DSN")
        return cls(user, password, dsn)


def refuse_password(address: str, where: str) -> None:
    """Raise InputError when an address carries a user or a password: it stands in configs and logs."""
    parts = urlsplit(address) if "://" in address else None
    in_url = parts and (
        "@" in parts.netloc or {"user", "password"} & {key for key, _ in parse_qsl(parts.query)}
    )
    if in_url or (
        parts is None and re.search(r"\bpass(word|file)?\s*=|^[^\s/=]+/[^\s/=]+@", address, re.IGNORECASE)
    ):
        raise InputError(
            f"{where}: holds a user or a password. Give the address alone; set NEST_DB_USER and NEST_DB_PASSWORD."
        )


def postgres_address(access: Access, *, allow_plaintext: bool) -> str:
    """Return the address libpq takes, credentials in it, TLS required of any host that is not this one.

    Raises:
        InputError: it is no postgresql:// address, or asks for no TLS of another host.
    """
    parts = urlsplit(access.dsn)
    if parts.scheme not in ("postgresql", "postgres"):
        raise InputError("NEST_DB_DSN: is no address like postgresql://host:5432/database. Write it so.")
    options = dict(parse_qsl(parts.query))
    host = options.get("host", parts.hostname or "")
    is_far = not _LOCAL.fullmatch(host) and not allow_plaintext
    if is_far and options.setdefault("sslmode", "require") not in _SAFE_MODES:
        _refuse_plaintext("sslmode=require or stricter")
    netloc = f"{quote(access.user, safe='')}:{quote(access.password, safe='')}@{parts.netloc}"
    query = "&".join(f"{key}={quote(value, safe='')}" for key, value in options.items())
    return urlunsplit(("postgresql", netloc, parts.path, query, ""))


def oracle_address(access: Access, *, allow_plaintext: bool) -> str:
    """Return the address python-oracledb takes.

    Raises:
        InputError: it asks for no TLS of a host that is not this one.
    """
    secure = access.dsn.lower().startswith("tcps://") or re.search(
        r"protocol\s*=\s*tcps", access.dsn, re.IGNORECASE
    )
    named = re.search(r"host\s*=\s*([^\s)]+)", access.dsn, re.IGNORECASE)
    host = named[1] if named else re.sub(r"^\w+://|^//", "", access.dsn).split("/")[0].rsplit(":", 1)[0]
    if not secure and not _LOCAL.fullmatch(host) and not allow_plaintext:
        _refuse_plaintext("tcps://host:port/service")
    return access.dsn


def _refuse_plaintext(safe: str) -> None:
    raise InputError(f"NEST_DB_DSN: another host without TLS. Write {safe}{OR_PLAINTEXT}.")
