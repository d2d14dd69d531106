"""Credentials of a database: read from the environment only, never from a file, never shown."""

import os
import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from pipelines.sources.pcornet.databases.libpq import ADDRESS, address_of, hosts_of, options_of
from schemas.errors import InputError

NAMES = ("NEST_DB_USER", "NEST_DB_PASSWORD", "NEST_DB_DSN")
OR_PLAINTEXT = ", or allow plain text on your own network: --allow-plaintext, or NEST_DB_ALLOW_PLAINTEXT=true"
_LOCAL = re.compile(r"localhost|127(\.\d+){3}|::1|[/@].*|", re.IGNORECASE)
_SAFE_MODES = ("require", "verify-ca", "verify-full")


@dataclass(frozen=True)
class Access:
    """User, password and address; the password is in no message and no representation."""

    user: str
    password: str = field(repr=False)
    dsn: str

    @classmethod
    def from_environment(cls) -> "Access":
        """Read user, password and address from the environment.

        Raises:
            InputError: a variable is missing, or the address holds a password.
        """
        missing = [name for name in NAMES if not os.environ.get(name)]
        if missing:
            raise InputError(
                f"{', '.join(missing)}: not set. Set the database's user, password and address in the environment."
            )
        user, password, dsn = (os.environ[name] for name in NAMES)
        dsn = dsn.strip()  # a mounted secret ends in a newline
        refuse_password(dsn, "NEST_DB_DSN")
        return cls(user, password, dsn)


def refuse_password(address: str, setting: str) -> None:
    """Refuse an address with a user or a password, since addresses stand in configurations and logs."""
    url = ADDRESS.fullmatch(address)
    in_url = url and (
        url["user"] is not None or {"user", "password"} & {key for key, _ in parse_qsl(url["query"] or "")}
    )
    if in_url or (
        url is None and re.search(r"\bpass(word|file)?\s*=|^[^\s/=]+/[^\s/=]+@", address, re.IGNORECASE)
    ):
        raise InputError(
            f"{setting}: holds a user or a password. Give the address alone; set NEST_DB_USER and NEST_DB_PASSWORD."
        )


def postgres_address(access: Access, *, allow_plaintext: bool) -> str:
    """Return the address for libpq with credentials; TLS is required if it may reach a host other than this one.

    Raises:
        InputError: the address is not a postgresql:// address, or disables TLS to another host.
    """
    options = options_of(access.dsn)
    if not allow_plaintext and not all(map(_is_local, hosts_of(options))):
        mode = options.setdefault("sslmode", os.environ.get("PGSSLMODE") or "require")
        if mode not in _SAFE_MODES:
            _refuse_plaintext("sslmode=verify-full, or require,")
    return address_of(options, access.user, access.password)


def oracle_address(access: Access, *, allow_plaintext: bool) -> str:
    """Return the address for python-oracledb; the driver itself resolves its hosts and protocols.

    Raises:
        InputError: the address is invalid, or reaches another host without TLS.
    """
    import oracledb  # the driver, imported only where it is used

    if allow_plaintext:
        return access.dsn
    address = oracledb.ConnectParams()
    try:
        address.parse_connect_string(access.dsn)
    except oracledb.Error:
        raise InputError(
            "NEST_DB_DSN: is neither an address like tcps://host:2484/service nor a name in the tnsnames.ora of "
            "TNS_ADMIN. Give one of these."
        ) from None
    hosts, protocols = (
        values if isinstance(values, list) else [values] for values in (address.host, address.protocol)
    )
    if not all(
        protocol == "tcps" or _is_local(host or "") for host, protocol in zip(hosts, protocols, strict=True)
    ):
        _refuse_plaintext("tcps://host:port/service")
    return access.dsn


def _is_local(host: str) -> bool:
    return _LOCAL.fullmatch(host) is not None


def _refuse_plaintext(safe: str) -> None:
    raise InputError(f"NEST_DB_DSN: reaches another host without TLS. Write {safe}{OR_PLAINTEXT}.")
